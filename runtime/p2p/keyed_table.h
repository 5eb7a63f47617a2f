// A hash table of elements that are linked by a member, each in the order in which its equals came.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "common/intrusive_list.h"
#include "common/wire.h"

namespace tutti {

/// Finds the oldest element of a key in constant time, whatever the number of elements. Several
/// elements may have the same key, which does not change while they are here. Not thread-safe. It
/// allocates memory only when it holds more elements than ever before; where there is none, it goes
/// on with what it has, and becomes slower.
template <typename T, Link<T> T::*link, std::uint64_t T::*key>
class KeyedTable {
 public:
  KeyedTable() = default;
  KeyedTable(const KeyedTable&) = delete;
  KeyedTable& operator=(const KeyedTable&) = delete;

  bool empty() const noexcept { return count_ == 0; }

  /// Adds an element as the youngest of its key.
  void push_back(T& element) noexcept {
    if (++count_ > buckets_) grow();
    bucket(element.*key).push_back(element);
  }
  void remove(T& element) noexcept {
    assert(count_ > 0);
    --count_;
    bucket(element.*key).remove(element);
  }

  /// Returns the oldest element with this key, or null if there is none.
  T* first(std::uint64_t wanted) const noexcept {
    T* element = bucket(wanted).front();
    while (element != nullptr && element->*key != wanted) element = Bucket::next(*element);
    return element;
  }

  void clear() noexcept {
    for (std::size_t i = 0; i < buckets_; ++i) all()[i].clear();
    count_ = 0;
  }

 private:
  using Bucket = IntrusiveList<T, link>;
  static constexpr std::size_t kFewest = 64;  // once there is more than one

  const Bucket* all() const noexcept { return many_ == nullptr ? &only_ : many_.get(); }
  Bucket* all() noexcept { return many_ == nullptr ? &only_ : many_.get(); }
  const Bucket& bucket(std::uint64_t of) const noexcept { return all()[mix(of) & (buckets_ - 1)]; }
  Bucket& bucket(std::uint64_t of) noexcept { return all()[mix(of) & (buckets_ - 1)]; }

  // Elements of one key come from one bucket, and so keep their order.
  void grow() noexcept {
    const std::size_t wanted = buckets_ < kFewest ? kFewest : 2 * buckets_;
    std::unique_ptr<Bucket[]> fresh(new (std::nothrow) Bucket[wanted]);
    if (fresh == nullptr) return;
    for (std::size_t i = 0; i < buckets_; ++i)
      while (T* const element = all()[i].pop_front())
        fresh[mix(element->*key) & (wanted - 1)].push_back(*element);
    many_ = std::move(fresh);
    buckets_ = wanted;
    assert(std::has_single_bit(buckets_));
  }

  std::size_t count_ = 0;
  std::size_t buckets_ = 1;
  Bucket only_;
  std::unique_ptr<Bucket[]> many_;  // null while there is one bucket
};

}  // namespace tutti
