// A connected, non-blocking socket, or TLS over one: where bytes between two processes leave and
// come.
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

/// One thread at a time; nothing waits.
class Stream {
 public:
  Stream() = default;
  explicit Stream(Fd socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }

  /// From here on everything goes through TLS, with a handshake first: Tls::shake_hands().
  void encrypt(std::shared_ptr<const TlsContext> context, Tls::Role role, const TlsKey& key) {
    assert(tls_ == nullptr && fd() >= 0);
    tls_ = std::make_unique<Tls>(std::move(context), role, key, fd());
  }
  /// Null: it is not encrypted.
  Tls* tls() const noexcept { return tls_.get(); }

  /// As readv(2). It may have bytes while the socket has none, where it is encrypted: whoever waits
  /// for the socket reads until it gives less than was asked for.
  ssize_t read(std::span<const iovec> to);
  /// As writev(2), but that no signal is raised. What was taken may wait to leave: see flush().
  ssize_t write(std::span<const iovec> pieces);
  /// False: it cannot write any more, errno says why.
  bool flush() { return tls_ == nullptr || tls_->flush(); }
  std::size_t unsent_bytes() const noexcept { return tls_ == nullptr ? 0 : tls_->unsent_bytes(); }

  /// What a failed call met, `number` being its errno.
  std::string describe(int number) const;

 private:
  Fd socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace tutti::net
