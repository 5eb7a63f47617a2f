#ifdef TUTTI_HAS_UCX
#include "transport/ucx/libucp.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <csignal>

#include <tutti/error.hpp>

#include "common/environment.h"

namespace tutti::ucx {
namespace {

constexpr const char* kName = "libucp.so.0";
constexpr const char* kLibucs = "libucs.so.0";

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("{} has no function {}: UCX 1.13 or newer is needed", kName, name));
}

/// Puts the handlers of signals back that were there when it was made: libucs installs some when it
/// is loaded (UCX_HANDLE_ERRORS).
class SignalHandlers {
 public:
  SignalHandlers() {
    for (std::size_t number = 1; number < handlers_.size(); ++number)
      known_[number] = sigaction(static_cast<int>(number), nullptr, &handlers_[number]) == 0;
  }
  ~SignalHandlers() {
    for (std::size_t number = 1; number < handlers_.size(); ++number) {
      struct sigaction now {};
      if (!known_[number] || sigaction(static_cast<int>(number), nullptr, &now) != 0) continue;
      if (now.sa_sigaction != handlers_[number].sa_sigaction)
        sigaction(static_cast<int>(number), &handlers_[number], nullptr);
    }
  }
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  std::array<struct sigaction, 65> handlers_{};
  std::array<bool, 65> known_{};
};

// UCX writes its log to standard output, which belongs to the program.
void silence(void* library) {
  if (tutti::find(process_environment(), "UCX_LOG_LEVEL")) return;
  using Set = ucs_status_t (*)(const char*, const char*);
  const auto set = reinterpret_cast<Set>(dlsym(library, "ucs_global_opts_set_value"));
  if (set != nullptr) set("LOG_LEVEL", "fatal");
}

void* load() {
  const SignalHandlers kept;
  void* const before = dlopen(kLibucs, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  void* const loaded = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("UCX needs libucp, which cannot be loaded: {}", dlerror()));
  if (before == nullptr) silence(loaded);
  return loaded;
}

}  // namespace

Library load_libucp() {
  void* const loaded = load();
  Library library;
  find(loaded, "ucp_config_read", library.config_read);
  find(loaded, "ucp_config_modify", library.config_modify);
  find(loaded, "ucp_config_release", library.config_release);
  find(loaded, "ucp_init_version", library.init_version);
  find(loaded, "ucp_cleanup", library.cleanup);
  find(loaded, "ucp_worker_create", library.worker_create);
  find(loaded, "ucp_worker_destroy", library.worker_destroy);
  find(loaded, "ucp_worker_get_address", library.worker_get_address);
  find(loaded, "ucp_worker_release_address", library.worker_release_address);
  find(loaded, "ucp_worker_set_am_recv_handler", library.worker_set_am_recv_handler);
  find(loaded, "ucp_worker_progress", library.worker_progress);
  find(loaded, "ucp_worker_get_efd", library.worker_get_efd);
  find(loaded, "ucp_worker_arm", library.worker_arm);
  find(loaded, "ucp_worker_signal", library.worker_signal);
  find(loaded, "ucp_ep_create", library.ep_create);
  find(loaded, "ucp_ep_flush_nbx", library.ep_flush_nbx);
  find(loaded, "ucp_ep_close_nbx", library.ep_close_nbx);
  find(loaded, "ucp_am_send_nbx", library.am_send_nbx);
  find(loaded, "ucp_am_recv_data_nbx", library.am_recv_data_nbx);
  find(loaded, "ucp_am_data_release", library.am_data_release);
  find(loaded, "ucp_request_check_status", library.request_check_status);
  find(loaded, "ucp_request_free", library.request_free);
  find(loaded, "ucp_mem_map", library.mem_map);
  find(loaded, "ucp_mem_unmap", library.mem_unmap);
  find(loaded, "ucs_status_string", library.status_string);
  return library;
}

}  // namespace tutti::ucx
#endif
