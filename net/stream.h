// A connected, non-blocking socket, with or without TLS.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cassert>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/fd.h"
#include "net/tls.h"

namespace tutti::net {

/// One end of a byte stream. No function blocks. It may be used by one thread at a time.
class Stream {
 public:
  Stream() = default;
  explicit Stream(Fd socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }

  /// Switches to TLS. The caller completes the TLS handshake (Tls::shake_hands()) before it reads
  /// or writes.
  void encrypt(std::shared_ptr<const TlsContext> context, Tls::Role role, const TlsKey& key) {
    assert(tls_ == nullptr && fd() >= 0);
    tls_ = std::make_unique<Tls>(std::move(context), role, key, fd());
  }
  /// Null if the stream is not encrypted.
  Tls* tls() const noexcept { return tls_.get(); }

  /// Reads like readv(2). An encrypted stream may hold bytes while its socket is not readable, so a
  /// caller that polls the socket first reads until it gets fewer bytes than it asked for.
  ssize_t read(std::span<const iovec> to);
  /// Writes like writev(2), but raises no SIGPIPE. If the stream is encrypted, bytes that it has
  /// taken may not have been sent yet: see flush().
  ssize_t write(std::span<const iovec> pieces);
  /// Sends buffered bytes without blocking. Returns false with errno set if the socket has failed.
  bool flush() { return tls_ == nullptr || tls_->flush(); }
  std::size_t unsent_bytes() const noexcept { return tls_ == nullptr ? 0 : tls_->unsent_bytes(); }

  /// A description of the error of a failed call whose errno is `number`.
  std::string describe(int number) const;

 private:
  Fd socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace tutti::net
