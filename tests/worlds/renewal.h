// The end of a world in which the ranks that are left make a new communicator: they shrink, or grow
// by newcomers. One of them may end meanwhile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "ground.h"
#include "runtime/membership/round.h"

namespace tutti::worlds {

class Renewal {
 public:
  struct Member {
    Communicator* comm = nullptr;  // null if the rank is dead
    bool dead = false;
  };
  Renewal(const Plan& plan, Ground& ground, std::vector<Member> members);
  ~Renewal();
  Renewal(const Renewal&) = delete;
  Renewal& operator=(const Renewal&) = delete;

  /// Returns what is wrong, or an empty string: all that get a new communicator must have the same
  /// members, each of which has joined, and calls on it must work.
  std::string run();

 private:
  struct Survivor;
  struct Arrival;
  bool dies(int number, int steps) const;
  bool over() const;
  void step(Survivor& one);
  void step(Arrival& one);
  std::string check() const;
  std::string check_members(const Regrouped& agreed) const;
  std::string check_arrivals(const Regrouped& agreed) const;
  std::string check_errors() const;
  bool undisturbed() const;
  std::string call_on(const Regrouped& agreed) const;

  const Plan& plan_;
  Ground& ground_;
  std::vector<std::unique_ptr<Survivor>> survivors_;
  std::vector<std::unique_ptr<Arrival>> arrivals_;
};

}  // namespace tutti::worlds
