#include "backend/vgpud/api/shared_question.h"

#include <utility>

namespace bandsaw {

void SharedQuestions::want(const std::string& what, Ask ask, Then then) {
  Question& question = questions_[what];
  question.ask = std::move(ask);
  question.next.push_back(std::move(then));
  if (!question.under_way) put(what);
}

void SharedQuestions::put(const std::string& what) {
  Question& question = questions_[what];
  question.under_way = true;
  const Ask ask = std::move(question.ask);
  ask([this, what, waiting = std::exchange(question.next, {})](const nlohmann::json& answer) {
    questions_[what].under_way = false;  // who is told may ask again
    for (const Then& then : waiting) then(answer);
    const auto found = questions_.find(what);
    if (found == questions_.end() || found->second.under_way) return;
    found->second.next.empty() ? void(questions_.erase(found)) : put(what);
  });
}

}  // namespace bandsaw
