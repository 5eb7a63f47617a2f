#include "transport/rdma/ibverbs.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

#ifdef TUTTI_HAS_VERBS
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "transport/rdma/libibverbs.h"

namespace tutti::rdma {
namespace {

constexpr std::uint32_t kMost24Bits = (1u << 24) - 1;
// Messages of up to this length are copied into the request, where the device can.
constexpr std::uint32_t kInlineBytes = 256;
// A device repeats after 4.096 us * 2^17 = 0.54 s without an answer, six times: a path that fails
// is noticed after about 4 s, and one that is down for less is waited for. Soft-RoCE takes seven
// for ever.
constexpr std::uint8_t kAnswerTimeout = 17, kRepeats = 6;
// A peer without a request to receive is a bug, as every frame has a slot (frame.h): no repeats.
constexpr std::uint8_t kNotReadyRepeats = 0;
constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kReadsAtOnce = 4;

[[noreturn]] void refuse(const std::string& what, int error) {
  std::string text = fmt::format("{}: {}", what, std::strerror(error));
  rlimit limit{};
  if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(" (the limit of locked memory is {} KiB: raise it with `ulimit -l`)",
                        limit.rlim_cur >> 10);
  throw Error(ErrorKind::unavailable, text);
}

/// What a queue pair's peer needs, as it travels.
struct Address {
  std::uint32_t number = 0, packet = 0;  // of the queue pair; of its first packet
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0, ethernet = 0;
  std::array<std::uint8_t, 16> gid{};
};
static_assert(sizeof(Address) == 28 && sizeof(Address) <= kMostAddressBytes);

/// What all queue pairs of a device share. Outlives them.
struct Context {
  Library library;
  ibv_context* device = nullptr;
  ibv_comp_channel* events = nullptr;
  Port port;
  ibv_port_attr attributes{};
  ibv_gid gid{};
  std::uint8_t gid_index = 0, traffic_class = 0, service_level = 0;
  std::uint16_t pkey_index = 0;

  Context() = default;
  ~Context() {
    if (events != nullptr) library.destroy_comp_channel(events);
    if (device != nullptr) library.close_device(device);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

/// A protection domain. Each queue pair has its own, so that a key serves the peer to which it was
/// given and nobody else.
class Domain {
 public:
  explicit Domain(std::shared_ptr<Context> context)
      : context_(std::move(context)), domain_(context_->library.alloc_pd(context_->device)) {
    if (domain_ == nullptr) refuse("no protection domain", errno);
  }
  ~Domain() { context_->library.dealloc_pd(domain_); }
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  Context& context() const noexcept { return *context_; }
  ibv_pd* get() const noexcept { return domain_; }

 private:
  const std::shared_ptr<Context> context_;
  ibv_pd* const domain_;
};

class IbRegion final : public Region {
 public:
  IbRegion(std::shared_ptr<Domain> domain, std::byte* memory, std::size_t bytes, bool readable)
      : domain_(std::move(domain)) {
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (readable) access |= IBV_ACCESS_REMOTE_READ;
    region_ = domain_->context().library.reg_mr(domain_->get(), memory, bytes, access);
    if (region_ == nullptr) refuse(fmt::format("cannot register {} bytes of memory", bytes), errno);
  }
  ~IbRegion() override { domain_->context().library.dereg_mr(region_); }
  std::uint32_t local_key() const noexcept override { return region_->lkey; }
  std::uint32_t remote_key() const noexcept override { return region_->rkey; }

 private:
  const std::shared_ptr<Domain> domain_;
  ibv_mr* region_ = nullptr;
};

class IbQueuePair final : public QueuePair {
 public:
  IbQueuePair(std::shared_ptr<Context> context, const QueueLimits& limits, void* owner,
              std::uint32_t first_packet);
  ~IbQueuePair() override {
    if (pair_ != nullptr) library().destroy_qp(pair_);
    if (completions_ != nullptr) library().destroy_cq(completions_);
  }

  std::string address() const override;
  void connect(std::string_view peer) override;
  std::unique_ptr<Region> add(std::byte* memory, std::size_t bytes, bool readable) override {
    return std::make_unique<IbRegion>(domain_, memory, bytes, readable);
  }
  bool send(std::uint32_t id, const Piece& piece) noexcept override;
  bool receive(std::uint32_t id, const Piece& piece) noexcept override;
  bool read(std::uint32_t id, const Piece& to, std::uint64_t address,
            std::uint32_t remote_key) noexcept override;
  std::size_t poll(std::span<Completion> completions) noexcept override;
  void arm() noexcept override { ibv_req_notify_cq(completions_, 0); }
  void stop() noexcept override {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    library().modify_qp(pair_, &attributes, IBV_QP_STATE);
  }

 private:
  using What = Completion::What;
  static std::uint64_t wr_id(What what, std::uint32_t id) noexcept {
    return static_cast<std::uint64_t>(what) << 32 | id;
  }
  static ibv_sge entry(const Piece& piece) noexcept {
    return {reinterpret_cast<std::uint64_t>(piece.data), piece.bytes, piece.local_key};
  }
  const Library& library() const noexcept { return domain_->context().library; }
  void create(const QueueLimits& limits);
  void modify(ibv_qp_attr& attributes, int mask, const char* to);

  const std::shared_ptr<Domain> domain_;
  const std::uint32_t first_packet_;
  ibv_cq* completions_ = nullptr;
  ibv_qp* pair_ = nullptr;
  std::uint32_t inline_bytes_ = 0;
};

IbQueuePair::IbQueuePair(std::shared_ptr<Context> context, const QueueLimits& limits, void* owner,
                         std::uint32_t first_packet)
    : domain_(std::make_shared<Domain>(std::move(context))), first_packet_(first_packet) {
  Context& its = domain_->context();
  const auto entries = static_cast<int>(limits.sends + limits.receives + limits.reads);
  completions_ = library().create_cq(its.device, entries, owner, its.events, 0);
  if (completions_ == nullptr) refuse("no completion queue", errno);
  try {
    create(limits);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = its.pkey_index;
    attributes.port_num = its.port.number;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
           "be initialised");
  } catch (...) {
    if (pair_ != nullptr) library().destroy_qp(pair_);
    library().destroy_cq(completions_);
    throw;
  }
}

void IbQueuePair::create(const QueueLimits& limits) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_;
  wanted.cap.max_send_wr = limits.sends + limits.reads;
  wanted.cap.max_recv_wr = limits.receives;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  for (const std::uint32_t inline_bytes : {kInlineBytes, 0u}) {
    ibv_qp_init_attr given = wanted;
    given.cap.max_inline_data = inline_bytes;
    pair_ = library().create_qp(domain_->get(), &given);
    if (pair_ == nullptr) continue;
    inline_bytes_ = std::min(given.cap.max_inline_data, kInlineBytes);
    return;
  }
  refuse("no queue pair", errno);
}

void IbQueuePair::modify(ibv_qp_attr& attributes, int mask, const char* to) {
  const int error = library().modify_qp(pair_, &attributes, mask);
  if (error != 0) refuse(fmt::format("the queue pair cannot {}", to), error);
}

std::string IbQueuePair::address() const {
  const Context& its = domain_->context();
  Address own;
  own.number = pair_->qp_num;
  own.packet = first_packet_;
  own.lid = its.attributes.lid;
  own.mtu = static_cast<std::uint8_t>(its.attributes.active_mtu);
  own.ethernet = its.port.ethernet ? 1 : 0;
  std::memcpy(own.gid.data(), its.gid.raw, own.gid.size());
  return {reinterpret_cast<const char*>(&own), sizeof own};
}

void IbQueuePair::connect(std::string_view text) {
  const Context& its = domain_->context();
  Address peer;
  if (text.size() != sizeof peer)
    throw Error(ErrorKind::unavailable, "the peer's queue pair has an address of another form");
  std::memcpy(&peer, text.data(), sizeof peer);
  if (peer.number > kMost24Bits || peer.packet > kMost24Bits || peer.mtu < IBV_MTU_256 ||
      peer.mtu > IBV_MTU_4096 || peer.ethernet != (its.port.ethernet ? 1 : 0))
    throw Error(ErrorKind::unavailable, "the peer's queue pair has an address that cannot be");
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu =
      static_cast<ibv_mtu>(std::min<std::uint8_t>(peer.mtu, its.attributes.active_mtu));
  ready.dest_qp_num = peer.number;
  ready.rq_psn = peer.packet;
  ready.max_dest_rd_atomic = kReadsAtOnce;
  ready.min_rnr_timer = 12;
  ready.ah_attr.port_num = its.port.number;
  ready.ah_attr.sl = its.service_level;
  ready.ah_attr.dlid = peer.lid;
  ready.ah_attr.is_global = its.port.ethernet ? 1 : 0;
  std::memcpy(ready.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  ready.ah_attr.grh.sgid_index = its.gid_index;
  ready.ah_attr.grh.hop_limit = kHopLimit;
  ready.ah_attr.grh.traffic_class = its.traffic_class;
  modify(ready,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "be made ready to receive");
  ibv_qp_attr sends{};
  sends.qp_state = IBV_QPS_RTS;
  sends.timeout = kAnswerTimeout;
  sends.retry_cnt = kRepeats;
  sends.rnr_retry = kNotReadyRepeats;
  sends.sq_psn = first_packet_;
  sends.max_rd_atomic = kReadsAtOnce;
  modify(sends,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "be made ready to send");
}

bool IbQueuePair::send(std::uint32_t id, const Piece& piece) noexcept {
  ibv_sge memory = entry(piece);
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = wr_id(What::sent, id);
  request.sg_list = &memory;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  if (piece.bytes <= inline_bytes_) request.send_flags = IBV_SEND_INLINE;
  return ibv_post_send(pair_, &request, &bad) == 0;
}

bool IbQueuePair::receive(std::uint32_t id, const Piece& piece) noexcept {
  ibv_sge memory = entry(piece);
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = wr_id(What::received, id);
  request.sg_list = &memory;
  request.num_sge = 1;
  return ibv_post_recv(pair_, &request, &bad) == 0;
}

bool IbQueuePair::read(std::uint32_t id, const Piece& to, std::uint64_t address,
                       std::uint32_t remote_key) noexcept {
  ibv_sge memory = entry(to);
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = wr_id(What::read, id);
  request.sg_list = &memory;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = remote_key;
  return ibv_post_send(pair_, &request, &bad) == 0;
}

std::size_t IbQueuePair::poll(std::span<Completion> completions) noexcept {
  std::array<ibv_wc, 16> found{};
  const auto most = static_cast<int>(std::min(found.size(), completions.size()));
  const int count = ibv_poll_cq(completions_, most, found.data());
  for (int i = 0; i < count; ++i) {
    const ibv_wc& from = found[static_cast<std::size_t>(i)];
    Completion& to = completions[static_cast<std::size_t>(i)];
    to.what = static_cast<What>(from.wr_id >> 32);
    to.id = static_cast<std::uint32_t>(from.wr_id);
    to.bytes = from.byte_len;
    to.error = from.status == IBV_WC_SUCCESS ? nullptr : library().wc_status_str(from.status);
  }
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

class IbDevice final : public Device {
 public:
  IbDevice(std::shared_ptr<Context> context, Random& random)
      : context_(std::move(context)), random_(random) {}

  std::unique_ptr<QueuePair> make(const QueueLimits& limits, void* owner) override {
    const auto packet = static_cast<std::uint32_t>(random_.next()) & kMost24Bits;
    return std::make_unique<IbQueuePair>(context_, limits, owner, packet);
  }
  int event_fd() const noexcept override { return context_->events->fd; }
  void take_events(std::vector<void*>& owners) override {
    ibv_cq* queue = nullptr;
    for (void* owner = nullptr;
         context_->library.get_cq_event(context_->events, &queue, &owner) == 0;) {
      context_->library.ack_cq_events(queue, 1);
      owners.push_back(owner);
    }
  }

 private:
  const std::shared_ptr<Context> context_;
  Random& random_;
};

// Returns how well a GID of RoCE serves: version 2 is routed and passes through ordinary networks,
// and an address of IPv4 is the one that administrators give.
int worth_of(const ibv_gid_entry& entry) {
  constexpr std::array<std::uint8_t, 12> kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool ipv4 = std::equal(kIpv4.begin(), kIpv4.end(), entry.gid.raw);
  const bool link_local = ipv4 ? entry.gid.raw[12] == 169 && entry.gid.raw[13] == 254
                               : entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
  return (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0) + (link_local ? 0 : 2) + (ipv4 ? 1 : 0);
}

void choose_gid(Context& its, int wanted) {
  std::optional<int> best;
  for (int index = 0; index < std::min(its.attributes.gid_tbl_len, 256); ++index) {
    ibv_gid_entry entry{};
    if ((wanted >= 0 && index != wanted) ||
        its.library.query_gid_ex(its.device, its.port.number, static_cast<std::uint32_t>(index),
                                 &entry, 0, sizeof entry) != 0)
      continue;
    const int worth = its.port.ethernet ? worth_of(entry) : -index;
    if (best && *best >= worth) continue;
    best = worth;
    its.gid = entry.gid;
    its.gid_index = static_cast<std::uint8_t>(index);
  }
  if (best) return;
  if (wanted >= 0)
    throw Error(ErrorKind::usage,
                fmt::format("port {} of {} has no GID {}, which TUTTI_RDMA_GID_INDEX asks for",
                            its.port.number, its.port.device, wanted));
  throw Error(ErrorKind::unavailable,
              fmt::format("port {} of {} has no GID: give its network interface an address",
                          its.port.number, its.port.device));
}

ibv_context* open_by_name(const Library& library, const std::string& name) {
  int count = 0;
  ibv_device** const list = library.get_device_list(&count);
  if (list == nullptr) refuse("libibverbs lists no devices", errno);
  ibv_context* opened = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count && opened == nullptr; ++i)
    if (name == library.get_device_name(list[i])) {
      opened = library.open_device(list[i]);
      error = errno;
    }
  library.free_device_list(list);
  if (opened == nullptr)
    refuse(
        fmt::format("cannot open the RDMA device {} (does this process have the right to, and is "
                    "the device's provider installed?)",
                    name),
        error);
  return opened;
}

}  // namespace

std::shared_ptr<Device> open_device(const Port& port, const Config& config, Random& random) {
  auto context = std::make_shared<Context>();
  context->library = load_libibverbs();
  context->port = port;
  context->device = open_by_name(context->library, port.device);
  const verbs_context* const verbs = verbs_get_ctx_op(context->device, query_port);
  if (verbs == nullptr || verbs->query_port(context->device, port.number, &context->attributes,
                                            sizeof context->attributes) != 0)
    refuse(fmt::format("cannot ask for port {} of {}", port.number, port.device), errno);
  context->traffic_class = static_cast<std::uint8_t>(config.rdma_traffic_class);
  context->service_level = static_cast<std::uint8_t>(config.rdma_service_level);
  context->pkey_index = static_cast<std::uint16_t>(config.rdma_pkey_index);
  choose_gid(*context, config.rdma_gid_index);
  context->events = context->library.create_comp_channel(context->device);
  if (context->events == nullptr) refuse("no event channel", errno);
  const int flags = fcntl(context->events->fd, F_GETFL);
  if (flags < 0 || fcntl(context->events->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    refuse("the event channel cannot be polled", errno);
  return std::make_shared<IbDevice>(std::move(context), random);
}

}  // namespace tutti::rdma

#else

namespace tutti::rdma {

std::shared_ptr<Device> open_device(const Port& port, const Config&, Random&) {
  throw Error(ErrorKind::unavailable,
              fmt::format("this build cannot use the RDMA device {}: it was made without "
                          "libibverbs's headers (libibverbs-dev)",
                          port.device));
}

}  // namespace tutti::rdma

#endif
