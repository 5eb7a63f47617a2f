// TLS 1.3 (RFC 8446) over a connected, non-blocking socket, between two ends that have proved to
// each other that they know the job's secret (authentication.h).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

// OpenSSL's, which stays out of this header.
struct ssl_st;
struct ssl_ctx_st;
struct bio_method_st;

namespace tutti::net {

/// Of errno: nothing has happened, ask again.
inline bool not_now(int number) noexcept {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

/// One connection's: AuthInitiator::tls_key() and AuthAcceptor's, equal at both ends.
using TlsKey = std::array<unsigned char, 32>;

/// What the connections of one owner have in common. Thread-safe.
class TlsContext {
 public:
  /// Throws `unavailable` where OpenSSL cannot do what is needed.
  TlsContext();

 private:
  friend class Tls;
  struct Freed {
    void operator()(ssl_ctx_st* context) const noexcept;
    void operator()(bio_method_st* method) const noexcept;
  };
  std::unique_ptr<bio_method_st, Freed> method_;
  std::unique_ptr<ssl_ctx_st, Freed> context_;
};

/// One end. One thread at a time; nothing waits. No certificates: both ends have the key (PSK), and
/// agree on fresh ones by X25519 (psk_dhe_ke), so that who learns the secret later reads nothing of
/// what was recorded before. AES-128-GCM.
///
/// read() and write() are as the socket's own calls. What write() has taken may not have left yet:
/// flush(). What has come may lie here while the socket is silent: read until it says EAGAIN before
/// waiting for the socket.
class Tls {
 public:
  enum class Role { client, server };
  enum class Handshake { going_on, done, failed };

  /// After so many bytes a sender changes its key: a key of AES-GCM is good for 2^24.5 records.
  static constexpr std::uint64_t kBytesOfAKey = std::uint64_t{64} << 30;

  Tls(std::shared_ptr<const TlsContext> context, Role role, const TlsKey& key, int socket,
      std::uint64_t bytes_of_a_key = kBytesOfAKey);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Call it until it is no longer going on; failed: why().
  Handshake shake_hands();

  /// As readv(2). -1 with EBADMSG for bytes that the other end did not send, or not so.
  ssize_t read(std::span<const iovec> to);
  /// As writev(2). Takes nothing while something waits to leave.
  ssize_t write(std::span<const iovec> pieces);
  /// Sends what waits to leave and goes without waiting. False: it cannot, errno says why.
  bool flush();
  std::size_t unsent_bytes() const noexcept { return out_.size() - out_sent_; }

  /// Tells the other end that nothing more comes: without this an end is one that anybody on the
  /// way may have made.
  void say_goodbye();

  /// What went wrong, where it was not the socket's doing; else empty.
  const std::string& why() const noexcept { return why_; }

 private:
  friend struct TlsCallbacks;
  struct Freed {
    void operator()(ssl_st* ssl) const noexcept;
  };
  enum class Took { bytes, nothing_yet, end, failure };

  Took take(std::byte* to, std::size_t bytes, std::size_t& taken);
  ssize_t receive();
  bool put(const std::byte* from, std::size_t bytes);
  void fail();

  const std::shared_ptr<const TlsContext> context_;
  const TlsKey key_;
  const int socket_;
  const std::uint64_t bytes_of_a_key_;
  std::unique_ptr<ssl_st, Freed> ssl_;
  std::unique_ptr<std::byte[]> in_;  // what the socket had: records, and a part of one
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::string out_;                      // records that wait to leave
  std::size_t out_sent_ = 0;             // of them
  std::unique_ptr<std::byte[]> record_;  // a record's bytes, from several pieces
  std::uint64_t bytes_with_key_ = 0;     // sent
  bool socket_ended_ = false;
  bool damaged_ = false;  // there was no sense in what came
  std::string why_;
};

}  // namespace tutti::net
