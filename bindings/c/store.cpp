#include "bindings/c/store.h"

#include <fmt/format.h>

#include <algorithm>

#include "bindings/c/guarded.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "rendezvous/store/key_table.h"

namespace tutti::c {
namespace {

constexpr std::size_t kFirstStoreBytes = 56;
constexpr std::size_t kUsualValueBytes = 4096;
constexpr int kErrorKinds = 7;

std::int64_t left_ms(Store::Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max<std::int64_t>(left.count(), 0);
}

// A store that calls the program's functions, which have to be thread-safe.
class ProgramStore final : public Store {
 public:
  explicit ProgramStore(const tuttiStore_t& functions) : f_(functions) {}
  ~ProgramStore() override {
    if (f_.release != nullptr) f_.release(f_.context);
  }

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    check(f_.set(f_.context, key.data(), key.size(), value.data(), value.size(), left_ms(deadline)),
          "set", key);
  }

  std::string get(std::string_view key, Deadline deadline) override {
    std::string value(kUsualValueBytes, '\0');
    for (;;) {
      std::size_t bytes = 0;
      check(f_.get(f_.context, key.data(), key.size(), value.data(), value.size(), &bytes,
                   left_ms(deadline)),
            "get", key);
      if (bytes > kMaxValueBytes)
        throw Error(ErrorKind::usage,
                    fmt::format("the store's get() says that the value of {} has {} bytes; a value "
                                "has at most {}",
                                key, bytes, kMaxValueBytes));
      const bool whole = bytes <= value.size();
      value.resize(bytes);
      if (whole) return value;
    }
  }

  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    std::int64_t sum = 0;
    check(f_.add(f_.context, key.data(), key.size(), amount, &sum, left_ms(deadline)), "add", key);
    return sum;
  }

  void wait(std::string_view key, Deadline deadline) override {
    check(f_.wait(f_.context, key.data(), key.size(), left_ms(deadline)), "wait", key);
  }

 private:
  static void check(tuttiResult_t result, const char* function, std::string_view key) {
    if (result == tuttiSuccess) return;
    const int code = static_cast<int>(result);
    const bool known = code > 0 && code <= kErrorKinds;
    throw Error(known ? static_cast<ErrorKind>(code) : ErrorKind::internal,
                fmt::format("the program's store: {} of key '{}' returned {}", function, key,
                            text_of(result)));
  }

  const tuttiStore_t f_;
};

}  // namespace

std::shared_ptr<Store> wrap(const tuttiStore_t* store) {
  const tuttiStore_t functions =
      read(result(store, "store"), TUTTI_STORE_INITIALIZER, kFirstStoreBytes, "store");
  if (functions.set == nullptr || functions.get == nullptr || functions.add == nullptr ||
      functions.wait == nullptr)
    throw Error(ErrorKind::usage, "a store needs its functions set, get, add and wait");
  return std::make_shared<ProgramStore>(functions);
}

}  // namespace tutti::c
