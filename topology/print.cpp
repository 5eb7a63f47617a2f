#include "topology/print.h"

#include <fmt/format.h>

#include "common/text.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>

namespace tutti {
namespace {

/// Writes a machine's nodes, starting at the root, as text or in Graphviz's language.
class Printer {
 public:
  explicit Printer(const Machine& machine) : machine_(machine), children_(machine.nodes.size()) {
    assert(machine.is_sound());
    for (std::size_t i = 1; i < machine.nodes.size(); ++i) {
      const int parent = machine.nodes[i].parent;
      children_[static_cast<std::size_t>(parent)].push_back(i);
    }
  }

  void text(std::size_t at, std::size_t depth) {
    assert(at < children_.size());
    std::string line = to_text(machine_.nodes[at]);
    for (; children_[at].size() == 1; line += ", " + to_text(machine_.nodes[at]))
      at = children_[at].front();
    const Node& node = machine_.nodes[at];
    if (node.kind == NodeKind::core) line += ": cpus " + to_text(node.cpus);
    write("{:{}}{}\n", "", 2 * depth, line);
    for (const std::size_t child : children_[at]) text(child, depth + 1);
  }

  void dot(std::size_t at, std::size_t depth) {
    assert(at < children_.size());
    const Node& node = machine_.nodes[at];
    const std::size_t indent = 2 * depth;
    if (children_[at].empty()) {
      const bool usable = !intersect(node.cpus, machine_.allowed).empty();
      const std::string cpus = node.cpus.empty() ? "" : "\\ncpus " + to_text(node.cpus);
      write("{:{}}n{} [label=\"{}{}\", fillcolor={}];\n", "", indent, at, to_text(node), cpus,
            usable ? "white" : "gray");
      return;
    }
    write("{:{}}subgraph cluster_{} {{\n{:{}}label=\"{}\";\n", "", indent, at, "", indent + 2,
          to_text(node));
    for (const std::size_t child : children_[at]) dot(child, depth + 1);
    write("{:{}}}}\n", "", indent);
  }

  std::string take() && { return std::move(text_); }

 private:
  template <typename... Args>
  void write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  const Machine& machine_;
  std::vector<std::vector<std::size_t>> children_;
  std::string text_;
};

char letter(LinkKind link) {
  switch (link) {
    case LinkKind::same_core: return 'c';
    case LinkKind::shared_l2: return '2';
    case LinkKind::shared_l3: return '3';
    case LinkKind::same_package: return 'p';
    case LinkKind::other_package:
    case LinkKind::other_machine: break;
  }
  return 'x';
}

}  // namespace

std::string_view to_string(NodeKind kind) {
  switch (kind) {
    case NodeKind::machine: return "machine";
    case NodeKind::package: return "package";
    case NodeKind::numa: return "numa";
    case NodeKind::cache: return "cache";
    case NodeKind::core: break;
  }
  return "core";
}

std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : escape_controls(text))
    line += c == '\n' ? "\\x0a" : c == '\t' ? "\\x09" : std::string(1, c);
  return line;
}

std::string size_text(std::size_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  return fmt::format("{:.4g} {}", size, kUnits[unit]);
}

std::string to_text(const Node& node) {
  if (node.kind == NodeKind::machine) return "machine";
  std::string text = node.kind == NodeKind::cache
                         ? fmt::format("L{}", node.level)
                         : fmt::format("{} {}", to_string(node.kind), node.number);
  if (node.bytes != 0) text += " " + size_text(node.bytes);
  return text;
}

std::string to_text(const Machine& machine) {
  Printer printer(machine);
  printer.text(0, 0);
  return std::move(printer).take();
}

std::string to_dot(const Machine& machine) {
  Printer printer(machine);
  printer.dot(0, 1);
  return "digraph machine {\n  node [shape=box, style=filled, fontname=monospace];\n"
         "  fontname=monospace;\n" +
         std::move(printer).take() + "}\n";
}

std::string links_text(const Machine& machine, const std::vector<Cpus>& ranks) {
  assert(!ranks.empty());
  const int width = static_cast<int>(fmt::formatted_size("{}", ranks.size())) + 1;
  std::string text = fmt::format("{:8}", "links");
  for (std::size_t b = 0; b < ranks.size(); ++b) text += fmt::format("{:>{}}", b, width);
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    text += fmt::format("\nrank {:<{}}", a, std::max(3, width));
    for (std::size_t b = 0; b < ranks.size(); ++b) {
      const char link = a == b ? '.' : letter(link_between(machine, ranks[a], ranks[b]));
      text += fmt::format("{:>{}}", link, width);
    }
  }
  text += "\n";
  for (const LinkKind link : {LinkKind::same_core, LinkKind::shared_l2, LinkKind::shared_l3,
                              LinkKind::same_package, LinkKind::other_package})
    text += fmt::format("{}{} {}", link == LinkKind::same_core ? "" : ", ", letter(link),
                        to_string(link));
  return text + "\n";
}

}  // namespace tutti
