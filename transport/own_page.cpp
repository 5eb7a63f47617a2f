#include "transport/own_page.h"

#include <new>

namespace tutti {

OwnPage::OwnPage(bool shared)
    : memory_(shared ? shm::make_memory(sizeof(StatusPage), shm::Access::read,
                                        "the status page of a rank")
                     : shm::Memory()),
      private_(shared ? nullptr : std::make_unique<StatusPage>()),
      page_(shared ? new (memory_.mapping.data()) StatusPage() : private_.get()) {}

}  // namespace tutti
