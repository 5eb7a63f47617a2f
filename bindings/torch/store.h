// torch's store as the store through which tutti's ranks find each other.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tutti/store.hpp>

namespace tutti::pytorch {

/// It is as thread-safe as torch's store.
class Store final : public tutti::Store {
 public:
  explicit Store(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace tutti::pytorch
