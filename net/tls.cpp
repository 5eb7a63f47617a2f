#include "net/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <tutti/error.hpp>

namespace tutti::net {

namespace {

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KiB
// The bytes that one system call receives or sends. With one call for each record, the system calls
// would cost as much as the cipher.
constexpr std::size_t kTlsReadBytes = 128 << 10;
constexpr std::size_t kWriteBytes = 64 << 10;
constexpr std::size_t kLargePiece = 8 << 10;
constexpr std::string_view kIdentity = "tutti";  // the PSK identity; a connection has only one key
// The cipher suite TLS_AES_128_GCM_SHA256 (RFC 8446, B.4).
constexpr std::array<unsigned char, 2> kCipher{0x13, 0x01};

std::string openssl_says() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason given" : reason;
}

[[noreturn]] void refuse(std::string_view what) {
  throw Error(ErrorKind::unavailable,
              fmt::format("OpenSSL {} ({}): connections cannot be encrypted; TUTTI_TLS=no does "
                          "without",
                          what, openssl_says()));
}

}  // namespace

// The callbacks that OpenSSL calls. None of them throws, because the caller is C code.
struct TlsCallbacks {
  static Tls& of(BIO* bio) { return *static_cast<Tls*>(BIO_get_data(bio)); }
  static Tls& of(SSL* ssl) { return *static_cast<Tls*>(SSL_get_ex_data(ssl, 0)); }

  static int write(BIO* bio, const char* bytes, int count) noexcept try {
    of(bio).out_.append(bytes, static_cast<std::size_t>(count));
    return count;
  } catch (const std::exception&) {
    return -1;
  }

  // OpenSSL reads a record's header and then its body, so this function serves both from a buffer.
  // OpenSSL's own read-ahead is not used because it moves all buffered bytes for each record.
  static int read(BIO* bio, char* to, int count) noexcept {
    BIO_clear_retry_flags(bio);
    Tls& tls = of(bio);
    if (tls.in_begin_ == tls.in_end_) {
      const ssize_t got = tls.receive();
      if (got < 0 && not_now(errno)) BIO_set_retry_read(bio);
      if (got <= 0) return static_cast<int>(got);
    }
    const std::size_t bytes =
        std::min(static_cast<std::size_t>(count), tls.in_end_ - tls.in_begin_);
    std::memcpy(to, tls.in_.get() + tls.in_begin_, bytes);
    tls.in_begin_ += bytes;
    assert(tls.in_begin_ <= tls.in_end_ && tls.in_end_ <= kTlsReadBytes);
    return static_cast<int>(bytes);
  }

  static long control(BIO* bio, int what, long, void*) noexcept {
    if (what == BIO_CTRL_EOF) return of(bio).socket_ended_ ? 1 : 0;
    return what == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static SSL_SESSION* session(SSL* ssl) noexcept {
    SSL_SESSION* const session = SSL_SESSION_new();
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipher.data());
    const TlsKey& key = of(ssl).key_;
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
      return session;
    SSL_SESSION_free(session);
    return nullptr;
  }

  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes,
                     SSL_SESSION** found) noexcept {
    *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *id_bytes = kIdentity.size();
    *found = session(ssl);
    return *found != nullptr ? 1 : 0;
  }

  static int find_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes,
                      SSL_SESSION** found) noexcept {
    const bool known =
        id_bytes == kIdentity.size() && std::memcmp(id, kIdentity.data(), id_bytes) == 0;
    *found = known ? session(ssl) : nullptr;
    return 1;
  }
};

void TlsContext::Freed::operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
void TlsContext::Freed::operator()(BIO_METHOD* method) const noexcept { BIO_meth_free(method); }
void Tls::Freed::operator()(SSL* ssl) const noexcept { SSL_free(ssl); }

TlsContext::TlsContext()
    : method_(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tutti")), context_(SSL_CTX_new(TLS_method())) {
  SSL_CTX* const context = context_.get();
  if (method_ == nullptr || context == nullptr) refuse("gives no TLS");
  BIO_meth_set_write(method_.get(), TlsCallbacks::write);
  BIO_meth_set_read(method_.get(), TlsCallbacks::read);
  BIO_meth_set_ctrl(method_.get(), TlsCallbacks::control);
  std::array<int, 2> groups{NID_X25519, NID_X9_62_prime256v1};
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set1_groups(context, groups.data(), groups.size()) != 1)
    refuse("knows no TLS 1.3 with AES-128-GCM");
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(context, TlsCallbacks::use_key);
  SSL_CTX_set_psk_find_session_callback(context, TlsCallbacks::find_key);
}

Tls::Tls(std::shared_ptr<const TlsContext> context, Role role, const TlsKey& key, int socket,
         std::uint64_t bytes_of_a_key)
    : context_(std::move(context)),
      key_(key),
      socket_(socket),
      bytes_of_a_key_(bytes_of_a_key),
      ssl_(SSL_new(context_->context_.get())),
      in_(std::make_unique_for_overwrite<std::byte[]>(kTlsReadBytes)),
      record_(std::make_unique_for_overwrite<std::byte[]>(kRecordBytes)) {
  assert(socket_ >= 0 && bytes_of_a_key_ > 0);
  BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(context_->method_.get());
  if (bio == nullptr) refuse("makes no connection");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_ex_data(ssl_.get(), 0, this);
  role == Role::client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  // A server that presents a certificate instead of using the pre-shared key fails the check.
  if (role == Role::client) SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
}

Tls::~Tls() = default;

Tls::Handshake Tls::shake_hands() {
  if (!why_.empty()) return Handshake::failed;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  const int error = SSL_get_error(ssl_.get(), result);
  assert(result != 1 || error == SSL_ERROR_NONE);
  // An end that did not use the pre-shared key would not be authenticated.
  if (result == 1 && SSL_session_reused(ssl_.get()) != 1)
    why_ = "does not use the job's secret for its connections";
  else if (result != 1 && error != SSL_ERROR_WANT_READ)
    fail();
  if (!flush() && why_.empty()) why_ = std::strerror(errno);  // it sends alerts, too
  if (!why_.empty()) return Handshake::failed;
  return result == 1 ? Handshake::done : Handshake::going_on;
}

// Records why OpenSSL has failed. It cannot distinguish between bytes that were damaged on the
// network and a peer that violates the protocol.
void Tls::fail() {
  const std::string reason = openssl_says();
  damaged_ = !socket_ended_ && ERR_peek_last_error() != 0;
  if (!damaged_)
    why_ = socket_ended_ ? "closed the connection" : std::strerror(errno);
  else if (ERR_GET_REASON(ERR_peek_last_error()) > SSL_AD_REASON_OFFSET)
    why_ = fmt::format(
        "says that what came there does not fit the keys (TLS: {}): it was damaged, "
        "or somebody changes what is on its way",
        reason);
  else
    why_ = fmt::format(
        "sends what does not fit its keys (TLS: {}): it is damaged, or somebody "
        "changes what is on its way",
        reason);
}

ssize_t Tls::receive() {
  assert(in_begin_ == in_end_ && "what has come is taken first");
  const ssize_t got = recv(socket_, in_.get(), kTlsReadBytes, 0);
  in_begin_ = 0;
  in_end_ = got > 0 ? static_cast<std::size_t>(got) : 0;
  if (got == 0) socket_ended_ = true;
  return got;
}

Tls::Took Tls::take(std::byte* to, std::size_t bytes, std::size_t& taken) {
  assert(to != nullptr && bytes > 0 && why_.empty());
  // Most calls find no bytes. They then cost one system call and do not enter OpenSSL.
  if (in_begin_ == in_end_ && SSL_pending(ssl_.get()) == 0 && receive() < 0 && not_now(errno))
    return Took::nothing_yet;
  ERR_clear_error();
  errno = 0;
  const int result = SSL_read_ex(ssl_.get(), to, bytes, &taken);
  if (result == 1) return Took::bytes;
  const int number = errno;  // of the socket
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ: return Took::nothing_yet;
    case SSL_ERROR_ZERO_RETURN: return Took::end;
    default: break;
  }
  if (socket_ended_) return Took::end;  // without close_notify, as when the peer was killed
  if (ERR_peek_last_error() == 0 && number != 0) {
    errno = number;
    return Took::failure;
  }
  fail();
  static_cast<void>(flush());  // sends the alert to the other end
  errno = EBADMSG;
  return Took::failure;
}

ssize_t Tls::read(std::span<const iovec> to) {
  std::size_t total = 0;
  if (damaged_) {
    errno = EBADMSG;
    return -1;
  }
  if (!why_.empty()) return 0;
  for (const iovec& piece : to)
    for (std::size_t at = 0; at < piece.iov_len;) {
      std::size_t taken = 0;
      const Took took =
          take(static_cast<std::byte*>(piece.iov_base) + at, piece.iov_len - at, taken);
      if (took == Took::bytes) {
        at += taken;
        total += taken;
        continue;
      }
      // Bytes before the end or an error are returned first; the next call reports that again.
      if (total > 0) return static_cast<ssize_t>(total);
      if (took == Took::end) return 0;
      if (took == Took::nothing_yet) errno = EAGAIN;
      return -1;
    }
  return static_cast<ssize_t>(total);
}

// Encrypts one record of at most kRecordBytes and appends it to out_, however much is unsent.
bool Tls::put(const std::byte* from, std::size_t bytes) {
  assert(bytes > 0 && bytes <= kRecordBytes);
  ERR_clear_error();
  bytes_with_key_ += bytes;
  if (bytes_with_key_ >= bytes_of_a_key_) {
    bytes_with_key_ = 0;
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) fail();
  }
  std::size_t written = 0;
  if (why_.empty() && SSL_write_ex(ssl_.get(), from, bytes, &written) != 1) fail();
  assert(!why_.empty() || written == bytes);
  if (!why_.empty()) errno = damaged_ ? EBADMSG : EPIPE;
  return why_.empty();
}

ssize_t Tls::write(std::span<const iovec> pieces) {
  errno = damaged_ ? EBADMSG : EPIPE;
  if (!why_.empty() || !flush()) return -1;
  errno = EAGAIN;
  if (unsent_bytes() > 0) return -1;
  std::size_t total = 0, gathered = 0;
  const auto put_gathered = [&] {
    const std::size_t bytes = std::exchange(gathered, 0);
    total += bytes;
    return bytes == 0 || put(record_.get(), bytes);
  };
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
    for (std::size_t left = pieces[i].iov_len; left > 0;) {
      // Small pieces are gathered into one record; large ones are encrypted in place, not copied.
      const bool alone = left >= kLargePiece || (gathered == 0 && i + 1 == pieces.size());
      if (alone && !put_gathered()) return -1;
      const std::size_t bytes = std::min(left, kRecordBytes - gathered);
      if (alone) {
        if (!put(from, bytes)) return -1;
        total += bytes;
      } else {
        std::memcpy(record_.get() + gathered, from, bytes);
        gathered += bytes;
        if (gathered == kRecordBytes && !put_gathered()) return -1;
      }
      from += bytes;
      left -= bytes;
      if (unsent_bytes() < kWriteBytes) continue;
      if (!flush()) return -1;
      if (unsent_bytes() > 0) return static_cast<ssize_t>(total);  // without the gathered bytes
    }
  }
  if (!put_gathered() || !flush()) return -1;
  assert(gathered == 0);
  return static_cast<ssize_t>(total);
}

bool Tls::flush() {
  while (unsent_bytes() > 0) {
    const ssize_t put = send(socket_, out_.data() + out_sent_, unsent_bytes(), MSG_NOSIGNAL);
    if (put < 0) return not_now(errno);
    out_sent_ += static_cast<std::size_t>(put);
    assert(out_sent_ <= out_.size());
  }
  out_.clear();
  out_sent_ = 0;
  return true;
}

void Tls::send_close_notify() {
  ERR_clear_error();
  if (why_.empty() && SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
  static_cast<void>(flush());
}

}  // namespace tutti::net
