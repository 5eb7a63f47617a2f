#include "transport/tcp/group.h"

#include <atomic>
#include <cstring>

namespace tutti::tcp {
namespace {

using Word = std::uint32_t;
constexpr std::size_t kWords = kBoardBytes / sizeof(Word);
static_assert(kBoardBytes % sizeof(Word) == 0 && kBoardSkip == sizeof(Word));

// All of a board's fields are atomic words, or are read only where one of them says so.
Word* words_of(const Board& board) {
  auto* bytes = reinterpret_cast<std::byte*>(const_cast<Board*>(&board));
  return reinterpret_cast<Word*>(bytes + kBoardSkip);
}

}  // namespace

BoardBytes read_board(const Board& board) {
  BoardBytes bytes;
  Word* const words = words_of(board);
  for (std::size_t i = 0; i < kWords; ++i) {  // the state first: what it says of the rest is there
    const Word word = std::atomic_ref(words[i]).load(std::memory_order_acquire);
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
  const auto* const begin = reinterpret_cast<const std::byte*>(&board);
  for (const Board::Call& call : board.calls) {  // one that was overwritten meanwhile is none
    const auto at = static_cast<std::size_t>(
        reinterpret_cast<const std::byte*>(&call.number_plus_one) - begin - kBoardSkip);
    std::uint64_t number = call.number_plus_one.load(std::memory_order_acquire);
    if (std::memcmp(bytes.data() + at, &number, sizeof number) == 0) continue;
    number = 0;
    std::memcpy(bytes.data() + at, &number, sizeof number);
  }
  return bytes;
}

void write_board(Board& board, const BoardBytes& bytes) {
  Word* const words = words_of(board);
  for (std::size_t i = kWords; i-- > 0;) {  // the state last
    Word word = 0;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    std::atomic_ref(words[i]).store(word, std::memory_order_release);
  }
}

}  // namespace tutti::tcp
