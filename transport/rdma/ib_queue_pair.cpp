#ifdef TUTTI_HAS_VERBS
#include "transport/rdma/ib_queue_pair.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tutti/error.hpp>

namespace tutti::rdma {
namespace {

// Messages of up to this length are copied into the request, where the device can.
constexpr std::uint32_t kInlineBytes = 256;
// A device repeats after 4.096 us * 2^17 = 0.54 s without an answer, six times: a path that fails
// is noticed after about 4 s, and one that is down for less is waited for. Soft-RoCE takes seven
// for ever.
constexpr std::uint8_t kAnswerTimeout = 17, kRepeats = 6;
// A peer without a request to receive is a bug, as every frame has a slot (frame.h): no repeats.
constexpr std::uint8_t kNotReadyRepeats = 0;
constexpr std::uint8_t kHopLimit = 64;
constexpr int kReadsAtOnce = 16;

std::uint8_t reads_of(int limit) noexcept {
  return static_cast<std::uint8_t>(std::clamp(limit, 0, kReadsAtOnce));
}

/// Holds what a queue pair's peer needs, as it travels.
struct Address {
  std::uint32_t number = 0, packet = 0;  // of the queue pair; of its first packet
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0, ethernet = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint32_t longest = 0;                 // what the port can send as one message
  std::uint8_t reads_out = 0, reads_in = 0;  // how many it begins and answers at the same time
  std::uint16_t zero = 0;
};
static_assert(sizeof(Address) == 36 && sizeof(Address) <= qp::kMostAddressBytes);

/// Owns a protection domain. Each queue pair has its own, so that a key serves the peer to which it
/// was given and nobody else.
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
  static std::string too_much(std::size_t bytes) {
    return fmt::format("cannot register {} bytes of memory", bytes);
  }
  IbRegion(std::shared_ptr<Domain> domain, std::byte* memory, std::size_t bytes, bool readable)
      : domain_(std::move(domain)) {
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (readable) access |= IBV_ACCESS_REMOTE_READ;
    if (bytes > domain_->context().limits.max_mr_size) refuse(too_much(bytes), EINVAL);
    region_ = domain_->context().library.reg_mr(domain_->get(), memory, bytes, access);
    if (region_ == nullptr) refuse(too_much(bytes), errno);
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
  ReadLimits reads() const noexcept override { return reads_; }
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
  ReadLimits reads_;
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
  own.longest = its.attributes.max_msg_sz;
  own.reads_out = reads_of(its.limits.max_qp_init_rd_atom);
  own.reads_in = reads_of(its.limits.max_qp_rd_atom);
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
      peer.mtu > IBV_MTU_4096 || peer.reads_out > kReadsAtOnce || peer.reads_in > kReadsAtOnce ||
      peer.ethernet != (its.port.ethernet ? 1 : 0))
    throw Error(ErrorKind::unavailable, "the peer's queue pair has an address that cannot be");
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu =
      static_cast<ibv_mtu>(std::min<std::uint8_t>(peer.mtu, its.attributes.active_mtu));
  ready.dest_qp_num = peer.number;
  ready.rq_psn = peer.packet;
  const std::uint8_t reads_in = std::min(reads_of(its.limits.max_qp_rd_atom), peer.reads_out);
  const std::uint8_t reads_out = std::min(reads_of(its.limits.max_qp_init_rd_atom), peer.reads_in);
  ready.max_dest_rd_atomic = reads_in;
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
  sends.max_rd_atomic = reads_out;
  modify(sends,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "be made ready to send");
  reads_ = {reads_out, reads_in > 0, std::min(peer.longest, its.attributes.max_msg_sz)};
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
  if (count < 0 && most > 0) {
    completions[0] = {What::nothing, 0, 0, "its completion queue cannot be polled"};
    return 1;
  }
  for (int i = 0; i < count; ++i) {
    const ibv_wc& from = found[static_cast<std::size_t>(i)];
    Completion& to = completions[static_cast<std::size_t>(i)];
    to.what = static_cast<What>(from.wr_id >> 32);
    to.id = static_cast<std::uint32_t>(from.wr_id);
    to.bytes = from.byte_len;
    to.error = from.status == IBV_WC_SUCCESS ? nullptr : library().wc_status_str(from.status);
  }
  return static_cast<std::size_t>(count);
}

}  // namespace

void refuse(const std::string& what, int error) {
  std::string text = fmt::format("{}: {}", what, std::strerror(error));
  rlimit limit{};
  if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(" (the limit of locked memory is {} KiB: raise it with `ulimit -l`)",
                        limit.rlim_cur >> 10);
  throw Error(ErrorKind::unavailable, text);
}

std::unique_ptr<QueuePair> make_queue_pair(std::shared_ptr<Context> context,
                                           const QueueLimits& limits, void* owner,
                                           std::uint32_t first_packet) {
  return std::make_unique<IbQueuePair>(std::move(context), limits, owner, first_packet);
}

}  // namespace tutti::rdma
#endif
