// Makes a folder that looks like /sys to what reads PCI devices.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::test {

class FakeSys {
 public:
  explicit FakeSys(const std::string& name)
      : root_(std::filesystem::temp_directory_path() /
              ("tutti-" + name + "-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(root_ / "bus/pci/devices");
  }
  ~FakeSys() { std::filesystem::remove_all(root_); }
  FakeSys(const FakeSys&) = delete;
  FakeSys& operator=(const FakeSys&) = delete;

  std::string path() const { return root_; }

  /// Adds a device at the end of a way such as "pci0000:16/0000:16:01.0/0000:17:00.0".
  void add(const std::string& way, const std::string& vendor, const std::string& device_class,
           const std::string& numa, const std::string& device = "0x2330") const {
    const std::filesystem::path folder = root_ / "devices" / way;
    write(folder, vendor, device_class, numa, device);
    std::filesystem::create_directory_symlink(std::filesystem::path("../../../devices") / way,
                                              root_ / "bus/pci/devices" / folder.filename());
  }
  void add_gpu(const std::string& way, const std::string& numa) const {
    add(way, "0x10de", "0x030200", numa);
  }
  /// Has a file of a device that was added say something else, or something more.
  void say(const std::string& bus, const std::string& file, const std::string& text) const {
    put(root_ / "bus/pci/devices" / bus / file, text);
  }
  /// Adds a port of an RDMA device to the PCI device at the end of a way.
  void add_rdma(const std::string& name, const std::string& way, const std::string& state,
                const std::string& rate, const std::string& port = "1") const {
    const std::filesystem::path folder = root_ / "class/infiniband" / name;
    link_device(folder, way);
    put(folder / "node_guid", "b83f:d203:0012:3456");
    put(folder / "ports" / port / "state", state);
    put(folder / "ports" / port / "rate", rate);
  }
  /// Adds an Ethernet interface of a device, or of none if the way is empty.
  void add_interface(const std::string& name, const std::string& way, const std::string& speed,
                     const std::string& state = "up") const {
    const std::filesystem::path folder = root_ / "class/net" / name;
    std::filesystem::create_directories(folder);
    if (!way.empty()) link_device(folder, way);
    put(folder / "operstate", state);
    put(folder / "type", "1");
    if (!speed.empty()) put(folder / "speed", speed);
  }
  /// Adds a node to what AMD's driver shows.
  void add_kfd_node(int node, const std::string& properties) const {
    put(kfd_node(node) / "properties", properties);
  }
  void add_kfd_link(int node, int link, const std::string& properties) const {
    put(kfd_node(node) / "io_links" / std::to_string(link) / "properties", properties);
  }
  /// Puts a cpu into a package.
  void add_cpu(int cpu, const std::string& package, const std::string& cpus_of_package) const {
    const std::filesystem::path folder =
        root_ / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    put(folder / "physical_package_id", package);
    put(folder / "core_siblings_list", cpus_of_package);
  }

  /// Adds a GPU as in a copy of /sys that has a folder where /sys has a link. Returns the folder.
  std::filesystem::path add_copied_gpu(const std::string& bus, const std::string& numa) const {
    const std::filesystem::path folder = root_ / "bus/pci/devices" / bus;
    write(folder, "0x10de", "0x030200", numa, "0x2330");
    return folder;
  }

 private:
  static void put(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  std::filesystem::path kfd_node(int node) const {
    return root_ / "class/kfd/kfd/topology/nodes" / std::to_string(node);
  }
  void link_device(const std::filesystem::path& folder, const std::string& way) const {
    std::filesystem::create_directories(folder);
    if (!std::filesystem::exists(folder / "device"))
      std::filesystem::create_directory_symlink(std::filesystem::path("../../../devices") / way,
                                                folder / "device");
  }
  static void write(const std::filesystem::path& folder, const std::string& vendor,
                    const std::string& device_class, const std::string& numa,
                    const std::string& device) {
    put(folder / "vendor", vendor);
    put(folder / "class", device_class);
    put(folder / "device", device);
    put(folder / "numa_node", numa);
  }

  const std::filesystem::path root_;
};

/// Two GPUs below one switch, one below a switch behind it, one below another root port, and one at
/// the other NUMA node.
inline void add_five_gpus(const FakeSys& sys) {
  const std::string upper = "pci0000:16/0000:16:01.0/0000:17:00.0/";
  sys.add_gpu(upper + "0000:18:00.0/0000:19:00.0", "0");
  sys.add_gpu(upper + "0000:18:01.0/0000:1a:00.0", "0");
  sys.add_gpu(upper + "0000:18:02.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0", "0");
  sys.add_gpu("pci0000:16/0000:16:02.0/0000:1e:00.0", "0");
  sys.add_gpu("pci0000:80/0000:80:01.0/0000:81:00.0", "1");
}

}  // namespace tutti::test
