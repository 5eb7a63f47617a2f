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
  /// Adds a GPU as in a copy of /sys that has a folder where /sys has a link. Returns the folder.
  std::filesystem::path add_copied_gpu(const std::string& bus, const std::string& numa) const {
    const std::filesystem::path folder = root_ / "bus/pci/devices" / bus;
    write(folder, "0x10de", "0x030200", numa, "0x2330");
    return folder;
  }

 private:
  static void write(const std::filesystem::path& folder, const std::string& vendor,
                    const std::string& device_class, const std::string& numa,
                    const std::string& device) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "vendor") << vendor << '\n';
    std::ofstream(folder / "class") << device_class << '\n';
    std::ofstream(folder / "device") << device << '\n';
    std::ofstream(folder / "numa_node") << numa << '\n';
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
