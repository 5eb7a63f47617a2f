#ifdef TUTTI_HAS_UCX
#include "transport/ucx/worker.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include <tutti/error.hpp>

#include "common/descriptors.h"
#include "transport/ucx/ucx_queue_pair.h"

namespace tutti::ucx {
namespace {

constexpr int kTurns = 64, kRounds = 8;  // of progress at a time
constexpr std::chrono::microseconds kPause{50};
constexpr int kArmTurns = 100;  // of handling events before a sleep

[[noreturn]] void refuse(const std::string& what, const char* why) {
  throw Error(ErrorKind::unavailable, fmt::format("UCX: {}: {}", what, why));
}

// UCX ends the process where it has no descriptor for a socket, so that there have to be some. A
// worker over TCP takes 18, and two or three for each peer later.
void require_descriptors() {
  constexpr std::size_t kSpare = 48;
  allow_descriptors(1024);
  std::vector<Fd> spare;
  while (spare.size() < kSpare) {
    spare.emplace_back(eventfd(0, EFD_CLOEXEC));
    if (!spare.back())
      refuse(fmt::format("it needs {} descriptors to begin with (is ulimit -n too low?)", kSpare),
             std::strerror(errno));
  }
}

}  // namespace

Mapping::Mapping(const Worker& worker, std::byte* data, std::size_t bytes) : worker_(worker) {
  ucp_mem_map_params_t parameters{};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  parameters.address = data;
  parameters.length = bytes;
  const ucs_status_t status = worker.library().mem_map(worker.context(), &parameters, &handle_);
  if (status != UCS_OK)
    refuse(fmt::format("{} bytes of memory cannot be registered (is the limit of locked memory, "
                       "ulimit -l, too low?)",
                       bytes),
           worker.text(status));
}

Mapping::~Mapping() { worker_.library().mem_unmap(worker_.context(), handle_); }

Worker::Worker(const Library& library, const Settings& settings, Random& random, Log* log)
    : library_(library), random_(random), log_(log) {
  try {
    require_descriptors();
    open(settings);
    create();
  } catch (...) {
    close();
    throw;
  }
}

Worker::~Worker() {
  if (strays_ > 0 && log_ != nullptr)
    log_->write(LogLevel::warn, "UCX: {} messages of strangers were ignored", strays_);
  assert(pairs_.empty());
  close();
}

void Worker::close() noexcept {
  if (worker_ != nullptr) library_.worker_destroy(worker_);
  if (context_ != nullptr) library_.cleanup(context_);
}

void Worker::open(const Settings& settings) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = library_.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) refuse("its settings (UCX_*) cannot be read", text(status));
  for (const auto& [name, value] : settings)
    if (status == UCS_OK) status = library_.config_modify(config, name.c_str(), value.c_str());
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  // Without UCP_FEATURE_RMA, UCP has no handlers by which peers would access memory by address.
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK)
    status = library_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &context_);
  library_.config_release(config);
  if (status != UCS_OK)
    refuse(
        "it cannot use any device (what do UCX_TLS, UCX_NET_DEVICES and TUTTI_INTERFACES allow?)",
        text(status));
}

void Worker::create() {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = library_.worker_create(context_, &parameters, &worker_);
  if (status != UCS_OK) refuse("no worker can be made", text(status));
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = UcxQueuePair::kMessage;
  handler.arg = this;
  handler.cb = [](void* worker, const void* header, std::size_t header_bytes, void* data,
                  std::size_t bytes, const ucp_am_recv_param_t* param) {
    return static_cast<Worker*>(worker)->take(static_cast<const std::byte*>(header), header_bytes,
                                              data, bytes,
                                              (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  };
  status = library_.worker_set_am_recv_handler(worker_, &handler);
  if (status == UCS_OK) status = library_.worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) refuse("the worker cannot be waited for", text(status));
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  status = library_.worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) refuse("the worker has no address", text(status));
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  library_.worker_release_address(worker_, address);
  if (UcxQueuePair::kAddressBytesBefore + address_.size() > qp::kMostAddressBytes)
    refuse(fmt::format("its address has {} bytes, which are too many", address_.size()),
           "limit the devices by UCX_NET_DEVICES");
}

std::unique_ptr<qp::QueuePair> Worker::make(const qp::QueueLimits& limits, void* owner) {
  return std::make_unique<UcxQueuePair>(shared_from_this(), limits, owner);
}

std::shared_ptr<Mapping> Worker::map(std::byte* data, std::size_t bytes) {
  std::erase_if(mappings_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<Mapping>& known = mappings_[{data, bytes}];
  std::shared_ptr<Mapping> mapping = known.lock();
  if (mapping == nullptr) known = mapping = std::make_shared<Mapping>(*this, data, bytes);
  return mapping;
}

// Hands a message to the queue pair whose token it bears. UCX calls it.
ucs_status_t Worker::take(const std::byte* header, std::size_t header_bytes, void* data,
                          std::size_t bytes, bool rendezvous) noexcept {
  const std::optional<Header> parsed = parse_header({header, header_bytes}, bytes);
  const auto found = parsed ? pairs_.find(parsed->token) : pairs_.end();
  if (found != pairs_.end()) return found->second->take(*parsed, data, rendezvous);
  if (strays_++ == 0 && log_ != nullptr) try {
      log_->write(LogLevel::warn,
                  "UCX: a message of a stranger was ignored (further ones are counted): somebody "
                  "else reaches the port at which UCX listens");
    } catch (...) {  // There is no memory for the line.
    }
  return UCS_OK;
}

void Worker::progress() noexcept {
  bool more = true;
  for (int round = 0; more && round < kRounds; ++round) {
    for (int turn = 0; turn < kTurns && library_.worker_progress(worker_) != 0; ++turn) {
    }
    more = false;
    for (const auto& [token, pair] : pairs_) more = pair->work() || more;
  }
}

// A signal that announced completions to another thread is taken by worker_arm(), so it is given
// again.
void Worker::arm() noexcept {
  ucs_status_t status = UCS_OK;
  for (int turn = 0; turn < kArmTurns; ++turn) {
    status = library_.worker_arm(worker_);
    if (status != UCS_ERR_BUSY) break;
    progress();
  }
  bool announced = status != UCS_OK;
  for (const auto& [token, pair] : pairs_) announced = announced || pair->has_event();
  if (announced) signal();
}

bool Worker::wait(Lock& lock, std::chrono::milliseconds limit,
                  const std::function<bool()>& done) noexcept {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    progress();
    if (done()) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

void Worker::take_events(std::vector<void*>& owners) {
  const std::lock_guard lock(mutex);
  progress();
  for (const auto& [token, pair] : pairs_)
    if (pair->has_event()) owners.push_back(pair->take_event());
  arm();
}

}  // namespace tutti::ucx
#endif
