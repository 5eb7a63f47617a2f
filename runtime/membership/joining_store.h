// The store as the ranks of one new communicator use it until they are connected.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include <tutti/store.hpp>

namespace tutti {

/// A store whose waits end with `peer_lost` once another rank of the communicator has failed to
/// join, or has ended where the store notices that; with `timeout` or `mismatch` if that was the
/// rank's error. A key of the communicator's has the reason.
class JoiningStore final : public Store {
 public:
  /// `name` is the communicator's, and begins the names of its keys. `also` is called by check(),
  /// and may be null. Throws what the store throws.
  JoiningStore(Store& store, std::string_view name, int rank, int size, Deadline deadline,
               std::function<void()> also);
  ~JoiningStore() override;
  JoiningStore(const JoiningStore&) = delete;
  JoiningStore& operator=(const JoiningStore&) = delete;

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

  /// Throws the same error as a wait would, where another rank has failed to join or has ended. It
  /// does not wait for that, and for the store only shortly.
  void check();
  /// Says that all ranks know of each other what they have to know, and connect. From then on only
  /// the rank that finds a mismatch knows of it.
  void connects() noexcept { connects_ = true; }
  /// Tells the others that this rank has failed to join, unless they know it from elsewhere. After
  /// a `timeout` they may wait longer than this rank, and get its error when it leaves the store.
  void fail(const std::exception& error) noexcept;

 private:
  Store& store_;
  const std::string lost_;    // the key of the reason
  const std::string losses_;  // that of a number, which can be read without waiting; 0 is none
  const int rank_;
  const std::function<void()> also_;
  bool connects_ = false;
  bool stays_ = false;  // The keys are set when this rank leaves the store, although this object
                        // has ended.
};

/// Returns the name of the communicator that this rank makes next of a store.
std::string next_prefix(Store& store, int rank, Store::Deadline deadline);

/// Calls `prepare`, before this rank joins the others. If that throws, it tells those that wait for
/// this rank in the store, for a second at most, and throws on.
void tell_if_it_throws(Store& store, int rank, int size, const std::function<void()>& prepare);

}  // namespace tutti
