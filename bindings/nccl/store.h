// Gives each communicator a part of the store through which its ranks meet.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <tutti/store.hpp>

namespace tutti::nccl {

/// A store whose keys begin with a prefix, so that several communicators may use one store. Waiting
/// calls end with `peer_lost` soon after *given_up is true, or a rank has called fail().
/// Thread-safe.
class Part final : public Store {
 public:
  using GivenUp = std::shared_ptr<const std::atomic<bool>>;

  Part(std::shared_ptr<Store> whole, std::string prefix, GivenUp given_up)
      : whole_(std::move(whole)), prefix_(std::move(prefix)), given_up_(std::move(given_up)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  /// To add 0 also throws `peer_lost` where a rank has said that it does not come.
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;
  std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) override;
  void set_when_gone(std::string_view key, std::string_view value, Deadline deadline) override;

  /// Has the store delete the keys of this part once as many processes as use it, `sharers`, have
  /// left.
  void share_keys(int sharers) { whole_->share(prefix_ + "/", sharers); }
  /// Has the store tell `why` to the ranks that wait, should this process end.
  void fail_when_gone(const std::string& why, Deadline deadline);
  /// Takes that back. It throws nothing.
  void has_joined() noexcept;
  /// Tells the ranks that wait that this one does not come. It throws nothing.
  void fail(const std::string& why) noexcept;
  /// Returns a part for a communicator that is made of this one. `name` is the same on its ranks,
  /// and no other such communicator has it.
  std::shared_ptr<Part> part(const std::string& name, GivenUp given_up) const;

 private:
  void throw_if_failed(Deadline deadline);

  const std::shared_ptr<Store> whole_;
  const std::string prefix_;
  const GivenUp given_up_;
};

/// Calls `wait`, unless `given_up` is true. Throws `peer_lost` in place of its error where it is.
template <typename Wait>
auto unless_aborted(const std::atomic<bool>& given_up, Wait&& wait) {
  try {
    if (!given_up) return wait();
  } catch (const Error&) {
    if (!given_up) throw;
  }
  throw Error(ErrorKind::peer_lost, "the communicator was aborted");
}

}  // namespace tutti::nccl
