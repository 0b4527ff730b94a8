// One question for all who want the same answer at about the same time.
//
// Who asks while an answer is awaited waits for the next one, whose question is put once that answer has come: nobody
// is told what was so before it asked, and however many ask, one question at a time is under way. All of it happens on
// the event loop.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bandsaw {

class SharedQuestions {
 public:
  using Then = std::function<void(const nlohmann::json&)>;
  // Calls what it is given exactly once, at once or later.
  using Ask = std::function<void(Then)>;
  // `what` names the question. Of those that wait together the last one's `ask` is called. Outlives the answers.
  void want(const std::string& what, Ask ask, Then then);

 private:
  struct Question {
    Ask ask;
    bool under_way = false;
    std::vector<Then> next;  // who waits for the answer to a question that is still to be put
  };
  void put(const std::string& what);
  std::map<std::string, Question> questions_;
};

}  // namespace bandsaw
