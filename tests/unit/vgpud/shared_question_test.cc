#include "backend/vgpud/api/shared_question.h"

#include <gtest/gtest.h>

namespace bandsaw {
namespace {

class SharedQuestionTest : public ::testing::Test {
 protected:
  // Wants an answer, which `heard_` has once it has come.
  void want(const std::string& name, const std::string& what = "one") {
    questions_.want(
        what, [this, name](SharedQuestions::Then then) { put(name, std::move(then)); },
        [this, name](const nlohmann::json& answer) { heard_ += name + ":" + answer.get<std::string>() + " "; });
  }
  void put(const std::string& name, SharedQuestions::Then then) {
    asked_ += name + " ";
    open_.push_back(std::move(then));
  }
  void answer(const std::string& text) {
    const SharedQuestions::Then then = std::move(open_.front());
    open_.erase(open_.begin());
    then(text);
  }
  SharedQuestions questions_;
  std::vector<SharedQuestions::Then> open_;
  std::string asked_, heard_;
};

TEST_F(SharedQuestionTest, WhoAsksAloneIsAnsweredAndAsksAgain) {
  want("a");
  answer("1");
  want("b");
  answer("2");
  EXPECT_EQ(asked_, "a b ");
  EXPECT_EQ(heard_, "a:1 b:2 ");
}

TEST_F(SharedQuestionTest, WhoComesWhileAnAnswerIsAwaitedIsToldTheNextOne) {
  want("a");
  want("b");
  want("c");
  EXPECT_EQ(asked_, "a ");
  answer("before they asked");
  EXPECT_EQ(heard_, "a:before they asked ");
  EXPECT_EQ(asked_, "a c ");  // one question for both, as the last one would put it
  answer("now");
  EXPECT_EQ(heard_, "a:before they asked b:now c:now ");
  EXPECT_TRUE(open_.empty());
}

TEST_F(SharedQuestionTest, OtherQuestionsDoNotWait) {
  want("a");
  want("b", "other");
  EXPECT_EQ(asked_, "a b ");
}

TEST_F(SharedQuestionTest, WhoIsToldMayAskAgain) {
  questions_.want(
      "one", [this](SharedQuestions::Then then) { put("a", std::move(then)); },
      [this](const nlohmann::json&) { want("again"); });
  want("b");
  answer("1");
  EXPECT_EQ(asked_, "a again ");  // with b, who waited
  answer("2");
  EXPECT_EQ(heard_, "b:2 again:2 ");
}

TEST_F(SharedQuestionTest, AnAnswerMayComeAtOnce) {
  for (int i = 0; i < 3; ++i) {
    questions_.want(
        "one", [](const SharedQuestions::Then& then) { then("at once"); },
        [this](const nlohmann::json& answer) { heard_ += answer.get<std::string>() + " "; });
  }
  EXPECT_EQ(heard_, "at once at once at once ");
}

}  // namespace
}  // namespace bandsaw
