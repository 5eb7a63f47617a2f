#include "transport/page_bytes.h"

#include <cassert>
#include <cstddef>
#include <cstring>

#include "common/sync.h"

namespace tutti {
namespace {

using Word = std::uint32_t;
constexpr std::size_t kWords = kStatusPageBytes / sizeof(Word);
static_assert(kStatusPageBytes % sizeof(Word) == 0 && kStatusPageSkip % sizeof(Word) == 0);
static_assert(offsetof(StatusPage, state) == kStatusPageSkip, "the first word that is read");
static_assert(sizeof(StatusPageBytes) == kStatusPageBytes && alignof(StatusPage) >= alignof(Word));

// The words from here on are the failure's text. It may be read only once the state says so, since
// another thread may be writing it until then.
constexpr std::size_t kText = (offsetof(StatusPage, failure) - kStatusPageSkip) / sizeof(Word);
static_assert(kText + StatusPage::kFailureBytes / sizeof(Word) == kWords);
static_assert(sizeof(StatusPageState) == sizeof(Word));

// All other fields of a status page are atomic words.
Word* words_of(const StatusPage& status_page) {
  auto* bytes = reinterpret_cast<std::byte*>(const_cast<StatusPage*>(&status_page));
  return reinterpret_cast<Word*>(bytes + kStatusPageSkip);
}

}  // namespace

StatusPageBytes read_status_page(const StatusPage& status_page) {
  StatusPageBytes bytes{};
  Word* const words = words_of(status_page);
  std::size_t count = kText;
  // The state is read first, so that what it says of the rest is valid.
  for (std::size_t i = 0; i < count; ++i) {
    const Word word = sync::AtomicRef<Word>(words[i]).load(std::memory_order_acquire);
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
    if (i == 0 && word == static_cast<Word>(StatusPageState::failed)) count = kWords;
  }
  const auto* const begin = reinterpret_cast<const std::byte*>(&status_page);
  for (const StatusPage::Call& call :
       status_page.calls) {  // A record that was overwritten meanwhile is invalid.
    const auto at = static_cast<std::size_t>(
        reinterpret_cast<const std::byte*>(&call.number_plus_one) - begin - kStatusPageSkip);
    std::uint64_t number = call.number_plus_one.load(std::memory_order_acquire);
    assert(at + sizeof number <= bytes.size());
    if (std::memcmp(bytes.data() + at, &number, sizeof number) == 0) continue;
    number = 0;
    std::memcpy(bytes.data() + at, &number, sizeof number);
  }
  return bytes;
}

void write_status_page(StatusPage& status_page, const StatusPageBytes& bytes) {
  if (status_page.state.load(std::memory_order_relaxed) != StatusPageState::open) return;
  Word* const words = words_of(status_page);
  for (std::size_t i = kWords; i-- > 0;) {  // The state is written last.
    Word word = 0;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    sync::AtomicRef<Word>(words[i]).store(word, std::memory_order_release);
  }
}

}  // namespace tutti
