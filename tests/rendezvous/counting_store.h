// A store that counts the requests made to it.
#pragma once

#include <tutti/store.hpp>

namespace tutti {

/// The store of one rank. It may be used by one thread at a time.
class CountingStore final : public Store {
 public:
  explicit CountingStore(Store& store) : store_(store) {}
  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    ++calls;
    store_.set(key, value, deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    ++calls;
    return store_.get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    ++calls;
    return store_.add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override {
    ++calls;
    store_.wait(key, deadline);
  }

  int calls = 0;

 private:
  Store& store_;
};

}  // namespace tutti
