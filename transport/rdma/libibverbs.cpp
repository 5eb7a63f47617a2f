#ifdef TUTTI_HAS_VERBS
#include "transport/rdma/libibverbs.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti::rdma {
namespace {

constexpr const char* kName = "libibverbs.so.1";

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("{} has no function {}: rdma-core 32 or newer is needed", kName, name));
}

}  // namespace

Library load_libibverbs() {
  void* const loaded = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("RDMA needs libibverbs, which cannot be loaded: {}", dlerror()));
  Library library;
  find(loaded, "ibv_get_device_list", library.get_device_list);
  find(loaded, "ibv_free_device_list", library.free_device_list);
  find(loaded, "ibv_get_device_name", library.get_device_name);
  find(loaded, "ibv_open_device", library.open_device);
  find(loaded, "ibv_close_device", library.close_device);
  find(loaded, "ibv_query_device", library.query_device);
  find(loaded, "_ibv_query_gid_ex", library.query_gid_ex);
  find(loaded, "ibv_alloc_pd", library.alloc_pd);
  find(loaded, "ibv_dealloc_pd", library.dealloc_pd);
  find(loaded, "ibv_reg_mr", library.reg_mr);
  find(loaded, "ibv_dereg_mr", library.dereg_mr);
  find(loaded, "ibv_create_comp_channel", library.create_comp_channel);
  find(loaded, "ibv_destroy_comp_channel", library.destroy_comp_channel);
  find(loaded, "ibv_create_cq", library.create_cq);
  find(loaded, "ibv_destroy_cq", library.destroy_cq);
  find(loaded, "ibv_get_cq_event", library.get_cq_event);
  find(loaded, "ibv_ack_cq_events", library.ack_cq_events);
  find(loaded, "ibv_create_qp", library.create_qp);
  find(loaded, "ibv_modify_qp", library.modify_qp);
  find(loaded, "ibv_destroy_qp", library.destroy_qp);
  find(loaded, "ibv_wc_status_str", library.wc_status_str);
  return library;
}

}  // namespace tutti::rdma
#endif
