// Describes devices and the links between them as plain data, which come from a file or from the
// description of a fabric. Plans and prices are computed from it without asking the system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

/// Lists the kinds of devices. A `cpu` is a NUMA node, `pci` a PCI switch or bridge, and a `port`
/// the end of a network interface at which the network begins.
enum class DeviceKind : std::uint8_t { cpu, pci, gpu, nic, port, nv_switch, net_switch };
inline constexpr int kDeviceKinds = 7;
std::string_view to_string(DeviceKind kind);

/// Lists the kinds of links. `cpus` joins the NUMA nodes of one machine.
enum class WireKind : std::uint8_t { pci, nvlink, xgmi, c2c, cpus, net };
inline constexpr int kWireKinds = 6;
std::string_view to_string(WireKind kind);

/// An element of a file with its attributes, as the file has them, in order.
struct Element {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;

  bool operator==(const Element&) const = default;
};

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;  ///< Unique in the graph: a PCI address, "cpu 0" or "net 0", for example.
  int parent = -1;   ///< The device above it in the PCI tree; -1 if there is none.
  int number = 0;    ///< Of a NUMA node, GPU or port: its number in the machine.
  int machine = 0;   ///< The number of the machine to which it belongs; -1 for a net_switch.
  /// The elements of the file that describe this device, the outermost first; write_nccl_topology()
  /// writes them again.
  std::vector<Element> elements;

  bool operator==(const Device&) const = default;
};

/// Describes a link in one direction. Parallel links between two devices are wires of their own.
struct Wire {
  int from = 0;
  int to = 0;
  WireKind kind = WireKind::pci;
  double gb_per_s = 0;    ///< 10^9 bytes a second.
  double latency_us = 0;  ///< 0 where the description does not say.
  Element element;        ///< The element of the file that describes it; mostly it has none.

  bool operator==(const Wire&) const = default;
};

struct Graph {
  std::vector<Device> devices;  ///< Parents come before their children.
  std::vector<Wire> wires;
  Element system;  ///< The outermost element of the file.
  int machines = 1;

  /// Returns whether indices, names, parents and bandwidths are valid.
  bool is_sound() const;
  /// Returns the indices of all devices of a kind, in order.
  std::vector<int> all(DeviceKind kind) const;

  bool operator==(const Graph&) const = default;
};

/// Adds a wire in each direction.
void connect(Graph& graph, int a, int b, WireKind kind, double gb_per_s, double latency_us = 0);

/// Returns the number of devices of each kind and the sum of each kind's wires, then the devices as
/// a tree with their wires.
std::string to_text(const Graph& graph);

/// Returns one JSON object: devices with kind, name, parent, number and machine, and wires with
/// ends, kind, bandwidth and latency.
std::string to_json(const Graph& graph);

/// Returns the graph in Graphviz's language: devices of one machine in a box, with an edge for the
/// wires between two devices, which are labelled with their bandwidth.
std::string to_dot(const Graph& graph);

}  // namespace tutti
