#include "info/transports.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include <tutti/error.hpp>

#include "common/clock.h"
#include "common/random.h"
#include "common/secret.h"
#include "rendezvous/roster.h"
#include "transport/doorbell.h"
#include "transport/local/local.h"
#include "transport/routes.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kManyPeers = 1000;

TransportReport look_at(const TransportEntry& entry, const TransportContext& context) {
  TransportReport report{std::string(entry.name), {}, {}};
  try {
    if (const auto place = entry.place(context)) {
      const Reach reach = entry.reach(*place, *place);
      report.link = reach.can;
      report.why_not = reach.why_not;
    }
    if (report.why_not.empty() && entry.make(context) == nullptr)
      report.why_not = entry.reach({}, {}).why_not;
  } catch (const Error& error) {
    report.why_not = error.what();
  }
  return report;
}

std::string rate_of(const LinkCapabilities& link) {
  return fmt::format("{:.3g}", static_cast<double>(link.bytes_per_second) / 1e9);
}

std::string latency_of(const LinkCapabilities& link) {
  return fmt::format("{:.3g}", static_cast<double>(message_time(link, 0)) / 1e6);
}

std::string memory_of(const LinkCapabilities& link) {
  if (link.registered_bytes == 0) return "-";
  return fmt::format("{} KiB ({} MiB for {} peers)", link.registered_bytes >> 10,
                     (kManyPeers * link.registered_bytes) >> 20, kManyPeers);
}

}  // namespace

std::vector<TransportReport> look_at_transports(const Config& config) {
  const SteadyClock clock;
  SystemRandom random;
  TransportContext context;
  context.size = 2;
  context.clock = &clock;
  context.random = &random;
  context.config = &config;
  context.doorbell = std::make_shared<const Doorbell>();
  context.hub = std::make_shared<local::Hub>(2);
  context.secret = make_secret(random);
  const RouteCandidates candidates{parse_transports(config.transports),
                                   config.transports == "auto"};
  const RouteTable table(candidates, Texts(offers_text(candidates, context)));
  std::vector<TransportReport> reports;
  std::vector<std::size_t> order;  // Transports that join two ranks here come first.
  for (const RouteTable::Link& link : table.at_place_of(0)) order.push_back(link.transport);
  for (std::size_t transport = 0; transport < table.transports().size(); ++transport)
    if (std::find(order.begin(), order.end(), transport) == order.end()) order.push_back(transport);
  for (const std::size_t transport : order)
    reports.push_back(look_at(table.transports()[transport], context));
  return reports;
}

std::string as_text(const std::vector<TransportReport>& reports) {
  std::string text = fmt::format("{:<10}  {:>12}  {:>11}  {}\n", "transport", "latency (us)",
                                 "rate (GB/s)", "memory registered with devices, for a peer");
  for (const TransportReport& report : reports)
    if (report.why_not.empty())
      text += fmt::format("{:<10}  {:>12}  {:>11}  {}\n", report.name, latency_of(report.link),
                          rate_of(report.link), memory_of(report.link));
    else
      text += fmt::format("{:<10}  cannot be used here: {}\n", report.name, report.why_not);
  return text +
         "\nFor two ranks here, in the order in which they prefer them; `local` joins threads of "
         "one process alone.\nLatency and rate are the assumptions by which ranks choose, not "
         "measurements; TUTTI_TRANSPORTS changes\nthe order (docs/routes.md).\n";
}

nlohmann::ordered_json as_json(const std::vector<TransportReport>& reports) {
  auto list = nlohmann::ordered_json::array();
  for (const TransportReport& report : reports) {
    nlohmann::ordered_json one{{"name", report.name}, {"usable", report.why_not.empty()}};
    if (report.why_not.empty()) {
      one["latency_us"] = static_cast<double>(message_time(report.link, 0)) / 1e6;
      one["bytes_per_second"] = report.link.bytes_per_second;
      one["registered_bytes_for_a_peer"] = report.link.registered_bytes;
    } else {
      one["why_not"] = report.why_not;
    }
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace tutti::tools
