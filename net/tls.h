// TLS 1.3 (RFC 8446) over a connected, non-blocking socket, between two ends that have
// authenticated each other with the job's secret (authentication.h).
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

// Types of OpenSSL, whose headers are not included here.
struct ssl_st;
struct ssl_ctx_st;
struct bio_method_st;

namespace tutti::net {

/// Whether the errno `number` means that a call would have blocked or was interrupted, so that it
/// can be repeated later.
inline bool not_now(int number) noexcept {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

/// The pre-shared key of one connection. AuthInitiator::tls_key() and AuthAcceptor::tls_key() give
/// the same key at both ends.
using TlsKey = std::array<unsigned char, 32>;

/// The OpenSSL context that the connections of one owner share. Thread-safe.
class TlsContext {
 public:
  /// Throws `unavailable` if OpenSSL does not support TLS 1.3 with AES-128-GCM.
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

/// One end of a TLS connection. No function blocks. It may be used by one thread at a time. There
/// are no certificates: both ends have a pre-shared key and agree on fresh keys with X25519
/// (psk_dhe_ke), which gives forward secrecy: a secret that leaks later does not decrypt recorded
/// traffic. The cipher is AES-128-GCM.
///
/// read() and write() behave like the calls of a socket. Bytes that write() has taken may not have
/// been sent yet: see flush(). Received bytes may be buffered here while the socket is not
/// readable, so the caller reads until it gets EAGAIN before it polls the socket.
class Tls {
 public:
  enum class Role { client, server };
  enum class Handshake { going_on, done, failed };

  /// The number of bytes after which a sender updates its key. An AES-GCM key is safe for 2^24.5
  /// records.
  static constexpr std::uint64_t kBytesOfAKey = std::uint64_t{64} << 30;

  Tls(std::shared_ptr<const TlsContext> context, Role role, const TlsKey& key, int socket,
      std::uint64_t bytes_of_a_key = kBytesOfAKey);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Continues the TLS handshake. It is called until it no longer returns `going_on`; if it returns
  /// `failed`, why() gives the reason.
  Handshake shake_hands();

  /// Reads like readv(2). Returns -1 with EBADMSG if the bytes received are not those that the
  /// other end sent.
  ssize_t read(std::span<const iovec> to);
  /// Writes like writev(2). It takes no bytes while earlier ones are still unsent.
  ssize_t write(std::span<const iovec> pieces);
  /// Sends unsent bytes as far as possible without blocking. Returns false with errno set if the
  /// socket has failed.
  bool flush();
  std::size_t unsent_bytes() const noexcept { return out_.size() - out_sent_; }

  /// Sends close_notify, which tells the other end that no more bytes follow. Without it the other
  /// end cannot tell the end of the stream from one forged by somebody on the network.
  void send_close_notify();

  /// Why the connection has failed, unless the socket itself failed; else empty.
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
  std::unique_ptr<std::byte[]> in_;  // encrypted bytes from the socket, not always whole records
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::string out_;                      // encrypted records to be sent
  std::size_t out_sent_ = 0;             // bytes at the front of out_ that have been sent
  std::unique_ptr<std::byte[]> record_;  // the plaintext of one record, gathered from small pieces
  std::uint64_t bytes_with_key_ = 0;     // bytes sent with the current key
  bool socket_ended_ = false;
  bool damaged_ = false;  // received bytes violated the TLS protocol or failed authentication
  std::string why_;
};

}  // namespace tutti::net
