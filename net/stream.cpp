#include "net/stream.h"

#include <sys/socket.h>

#include <cassert>
#include <cstring>

namespace tutti::net {

ssize_t Stream::read(std::span<const iovec> to) {
  assert(!to.empty() && fd() >= 0);
  if (tls_ != nullptr) return tls_->read(to);
  if (to.size() == 1) return recv(fd(), to[0].iov_base, to[0].iov_len, 0);
  return readv(fd(), to.data(), static_cast<int>(to.size()));
}

ssize_t Stream::write(std::span<const iovec> pieces) {
  assert(!pieces.empty() && fd() >= 0);
  if (tls_ != nullptr) return tls_->write(pieces);
  if (pieces.size() == 1) return send(fd(), pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return sendmsg(fd(), &message, MSG_NOSIGNAL);
}

std::string Stream::describe(int number) const {
  return tls_ != nullptr && !tls_->why().empty() ? tls_->why() : std::strerror(number);
}

}  // namespace tutti::net
