// A doubly linked list whose links are members of its elements: it allocates nothing, and removes
// an element in constant time.
#pragma once

#include <cassert>

namespace tutti {

template <typename T>
struct Link {
  T* previous = nullptr;
  T* next = nullptr;
};

/// A list of elements that are connected by their member `link`. Not thread-safe. An element must
/// outlive its membership, and is in at most one list by a given link.
template <typename T, Link<T> T::*link>
class IntrusiveList {
 public:
  IntrusiveList() = default;
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const noexcept { return first_ == nullptr; }
  T* front() const noexcept { return first_; }
  T* back() const noexcept { return last_; }
  static T* next(const T& element) noexcept { return (element.*link).next; }
  static T* previous(const T& element) noexcept { return (element.*link).previous; }

  void push_back(T& element) noexcept {
    element.*link = {last_, nullptr};
    (last_ != nullptr ? (last_->*link).next : first_) = &element;
    last_ = &element;
    assert(first_ != nullptr && (last_->*link).next == nullptr);
  }

  void remove(T& element) noexcept {
    const Link<T> at = element.*link;
    assert(at.previous != nullptr || first_ == &element);
    (at.previous != nullptr ? (at.previous->*link).next : first_) = at.next;
    (at.next != nullptr ? (at.next->*link).previous : last_) = at.previous;
    element.*link = {};
    assert((first_ == nullptr) == (last_ == nullptr));
  }

  /// Returns null if the list is empty.
  T* pop_front() noexcept {
    T* element = first_;
    if (element != nullptr) remove(*element);
    return element;
  }

  void clear() noexcept {
    while (pop_front() != nullptr) continue;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace tutti
