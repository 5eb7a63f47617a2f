// The status page of a rank whose peers are reached by several transports, each of which shows it.
#pragma once

#include <memory>

#include "transport/shm/memory.h"
#include "transport/status_page.h"

namespace tutti {

/// Owns a status page.
class OwnPage {
 public:
  /// A `shared` page lies in memory that peers can map. Throws `unavailable` where there is none.
  explicit OwnPage(bool shared);

  StatusPage& page() const noexcept { return *page_; }
  bool is_shared() const noexcept { return private_ == nullptr; }
  int memory() const noexcept { return memory_.fd.get(); }  ///< See ShownPage.
  /// Says that all transports that show the page are connected, so that its memory needs no
  /// descriptor any more.
  void be_connected() noexcept { memory_.fd.reset(); }

 private:
  shm::Memory memory_;
  const std::unique_ptr<StatusPage> private_;  // null where the page is shared
  StatusPage* const page_;
};

/// Returns a page for transports to show, all of which keep it.
inline ShownPage shown(const std::shared_ptr<OwnPage>& own) {
  return {{own, &own->page()}, own->memory()};
}

}  // namespace tutti
