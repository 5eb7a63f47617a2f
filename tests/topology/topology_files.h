// Topology files for tests: one that shows everything, and those of real machines where they are.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tutti {

/// Two GPUs that NVLink joins behind one switch, with a network interface of two ports, and a GPU
/// on another NUMA node that reaches an NVSwitch.
inline const std::string kSmallTopology = R"(<!-- by hand -->
<system version="1">
  <cpu numaid="0" affinity="000000ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="8 GT/s" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:03:00.0" count="2" tclass="0x030200"/>
          <nvlink target="0000:aa:00.0" count="4" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:02:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:04:00.0" class="0x020700" link_speed="" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="262144" gdr="1"/>
          <net name="mlx5_1" dev="1" speed="100000" port="2" guid="0x2" latency="1.5" maxconn="262144" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="0000ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:81:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="2" sm="90" rank="2" gdr="1">
        <nvlink target="0000:ab:00.0" count="4" tclass="0x068000"/>
        <nvlink target="0000:ff:00.0" count="4" tclass="0x030200"/>
      </gpu>
    </pci>
    <nic>
      <net name="eth0" dev="2" speed="-1" port="0" guid="0x3" maxconn="65536" gdr="0"/>
    </nic>
  </cpu>
</system>
)";

/// Returns the files of a folder of data that lies beside the sources where there is one, ordered
/// by name; empty where there is none.
inline std::vector<std::string> shared_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code missing;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TUTTI_SHARED_DATA) + "/" + folder, missing))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tutti
