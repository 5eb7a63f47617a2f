// Checks whether a text is well-formed XML, with elements, attributes and the five entities.
#pragma once

#include <string>
#include <string_view>

namespace tutti::tools {

/// Returns what is wrong with it, or "" if it is well-formed.
std::string xml_mistake(std::string_view text);

}  // namespace tutti::tools
