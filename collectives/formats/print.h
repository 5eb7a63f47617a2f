// The texts by which verdicts and the printer (tutti/schedule.hpp) name operands, steps and chunks.
#pragma once

#include <string>

#include <tutti/schedule.hpp>

namespace tutti {

std::string_view to_string(Place place);      ///< "input", "output", "scratch" or "peer".
std::string to_text(const Operand& operand);  ///< "output[3]", or "rank 3" for a peer.
std::string to_text(const Step& step);  ///< "chunk 0: rank 1 + input[0] -> output[0]; completes".
std::string chunks_text(int chunk, int count);  ///< "chunk 3", "chunks 3 to 5".

}  // namespace tutti
