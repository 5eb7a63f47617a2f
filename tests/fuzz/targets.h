// The parsers of bytes that come from outside, each as a function of bytes. libFuzzer searches for
// bytes that break them, and a test runs them on bytes drawn from a seed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::fuzz {

struct Target {
  std::string_view name;
  /// Runs the parser, and crashes if anything is wrong.
  void (*run)(std::string_view bytes);
  /// Returns well-formed inputs with which the search begins.
  std::vector<std::string> (*seeds)();
  /// How many random changes of each seed the test tries.
  int changes = 5000;
};

std::span<const Target> targets();

/// What a peer hands over and writes in shared memory.
void run_packets(std::string_view bytes);
std::vector<std::string> packet_seeds();
/// These take what a peer sends over RDMA.
void run_sends(std::string_view bytes);
std::vector<std::string> send_seeds();
/// These take the headers of what a peer, or a stranger, sends over UCX.
void run_ucx_headers(std::string_view bytes);
std::vector<std::string> ucx_header_seeds();
/// These take files that describe machines and fabrics.
void run_topologies(std::string_view bytes);
std::vector<std::string> topology_seeds();
void run_fabrics(std::string_view bytes);
std::vector<std::string> fabric_seeds();
/// These take files of schedules.
void run_schedules(std::string_view bytes);
std::vector<std::string> schedule_seeds();
/// The messages of sends and receives.
void run_transfers(std::string_view bytes);
std::vector<std::string> transfer_seeds();
/// These take settings in a file and in the environment; costs of a machine; the file of a store;
/// and a dump of the flight recorder.
void run_settings(std::string_view bytes);
std::vector<std::string> settings_seeds();
void run_tuning_file(std::string_view bytes);
std::vector<std::string> tuning_file_seeds();
void run_store_file(std::string_view bytes);
std::vector<std::string> store_file_seeds();
void run_dump(std::string_view bytes);
std::vector<std::string> dump_seeds();

}  // namespace tutti::fuzz
