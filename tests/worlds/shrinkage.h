// The end of a world in which the ranks that are left shrink a communicator, one of which may end
// meanwhile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "ground.h"

namespace tutti::worlds {

class Shrinkage {
 public:
  struct Member {
    Communicator* comm = nullptr;  // null if the rank is dead
    bool dead = false;
  };
  Shrinkage(const Plan& plan, Ground& ground, std::vector<Member> members);
  ~Shrinkage();
  Shrinkage(const Shrinkage&) = delete;
  Shrinkage& operator=(const Shrinkage&) = delete;

  /// Returns what is wrong, or an empty string: all that get a new communicator must have the same
  /// members, each of which has joined, and calls on it must work.
  std::string run();

 private:
  struct Survivor;
  std::string check() const;
  std::string call_on(const std::vector<int>& members) const;

  const Plan& plan_;
  Ground& ground_;
  std::vector<std::unique_ptr<Survivor>> survivors_;
};

}  // namespace tutti::worlds
