// Whether a text is well-formed XML: elements, attributes and the five entities.
#pragma once

#include <string>
#include <string_view>

namespace tutti::tools {

/// What is wrong with it; empty: nothing.
std::string xml_mistake(std::string_view text);

}  // namespace tutti::tools
