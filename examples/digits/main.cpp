// Trains a small network to read handwritten digits, data-parallel with tutti.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tutti/launch.hpp>
#include <utility>
#include <vector>

#include "elastic.h"
#include "idx.h"
#include "progress.h"
#include "ranks.h"
#include "train.h"

namespace digits {
namespace {

struct Options {
  std::string images = "examples/data/digits/digits-images-idx3-ubyte.gz";
  std::string labels = "examples/data/digits/digits-labels-idx1-ubyte.gz";
  int ranks = 1;
  std::vector<int> compare;
  Settings settings;
  bool elastic = false;
  std::vector<std::pair<int, std::size_t>> kills, aborts;
  double patience_s = 10, await_newcomers_s = 10;
};

void add_options(CLI::App& app, Options& options) {
  Settings& s = options.settings;
  app.add_option("--images", options.images, "IDX file of images, gzip-compressed")
      ->capture_default_str();
  app.add_option("--labels", options.labels, "IDX file of labels, gzip-compressed")
      ->capture_default_str();
  auto* const ranks = app.add_option("--ranks", options.ranks, "Ranks, as threads of this process")
                          ->check(CLI::Range(1, 64))
                          ->capture_default_str();
  auto* const compare =
      app.add_option("--compare", options.compare,
                     "Train once with each of these numbers of ranks, such as 1,2,4, as threads of "
                     "this process, and compare the losses")
          ->check(CLI::Range(1, 64))
          ->delimiter(',')
          ->excludes(ranks);
  app.add_option("--epochs", s.epochs, "Passes over the training samples")->capture_default_str();
  app.add_option("--batch", s.batch, "Samples of one step, over all ranks")->capture_default_str();
  app.add_option("--learning-rate", s.learning_rate, "Step width")->capture_default_str();
  app.add_option("--momentum", s.momentum, "Share of the last step in the next")
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Decides the split, the first weights and the order")
      ->capture_default_str();
  app.add_option("--hidden", s.hidden, "Widths of the hidden layers")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--bucket-bytes", s.buckets.cap_bytes, "Most bytes of a bucket of gradients")
      ->capture_default_str();
  app.add_option("--first-bucket-bytes", s.buckets.first_cap_bytes, "The same for the first bucket")
      ->capture_default_str();
  auto* const checkpoint =
      app.add_option("--checkpoint", s.checkpoint, "File to save the state in after each epoch")
          ->excludes(compare);
  app.add_flag("--resume", s.resume, "Go on from the checkpoint")->needs(checkpoint);
  auto* const elastic =
      app.add_flag("--elastic", options.elastic,
                   "Go on when ranks end, and take newcomers in their places in; see README.md")
          ->excludes(ranks)
          ->excludes(compare)
          ->excludes(checkpoint);
  app.add_option("--patience", options.patience_s,
                 "Seconds that the others wait for a rank that answers nothing")
      ->needs(elastic)
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--await-newcomers", options.await_newcomers_s,
                 "Seconds that ranks wait for newcomers, at the end of the first whole epoch "
                 "without the ranks that have ended; 0: they do not")
      ->needs(elastic)
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--kill", options.kills,
                 "To see what happens: rank R kills itself in the middle of step S, counted from 0 "
                 "over all epochs; repeatable")
      ->type_name("R S")
      ->needs(elastic);
  app.add_option("--abort", options.aborts,
                 "The same: rank R aborts in place of taking step S, for which the others have all")
      ->type_name("R S")
      ->needs(elastic);
  app.footer(
      "Under a launcher (tutti-run, torchrun, mpirun, srun) this is one rank of its job; "
      "otherwise the ranks are threads of this process.");
}

void print_result(const Result& result) {
  fmt::print("held-out accuracy {:.1f} %\n", 100 * result.accuracy);
}

int train_and_print(const Options& options, const Dataset& data) {
  Progress progress(options.settings.epochs);
  if (!tutti::launched()) {
    print_result(train_on_threads(options.ranks, data, options.settings, &progress));
    return EXIT_SUCCESS;
  }
  tutti::Communicator communicator = tutti::Communicator::from_env();
  const Result result = train(communicator, data, options.settings, &progress);
  if (communicator.rank() == 0) print_result(result);
  return EXIT_SUCCESS;
}

int train_elastic_and_print(const Options& options, const Dataset& data) {
  const auto ms = [](double s) { return std::chrono::milliseconds(static_cast<long>(s * 1000)); };
  ElasticSettings elastic;
  elastic.patience = ms(options.patience_s);
  elastic.await_newcomers = ms(options.await_newcomers_s);
  for (const auto& [rank, step] : options.kills) elastic.kills.push_back({rank, step});
  for (const auto& [rank, step] : options.aborts) elastic.aborts.push_back({rank, step});
  if (!tutti::launched() && !tutti::newcomer())
    throw tutti::Error(tutti::ErrorKind::usage,
                       "ranks that may end are processes: start them with a launcher, for example "
                       "`tutti-run -n 4 --max-restarts 1 -- digits --elastic`");
  Progress progress(options.settings.epochs);
  const ElasticResult end =
      train_elastic(tutti::newcomer(), data, options.settings, elastic, progress, progress);
  if (end.rank != 0) return EXIT_SUCCESS;
  fmt::print("training loss {:.9f}\n", end.result.loss);
  print_result(end.result);
  return EXIT_SUCCESS;
}

int compare_and_print(const Options& options, const Dataset& data) {
  std::vector<double> losses;
  fmt::print("ranks  final loss       held-out accuracy\n");
  for (const int ranks : options.compare) {
    const Result result = train_on_threads(ranks, data, options.settings, nullptr);
    losses.push_back(result.loss);
    fmt::print("{:5}  {:.12f}   {:.1f} %\n", ranks, result.loss, 100 * result.accuracy);
    std::fflush(stdout);
  }
  const auto [least, greatest] = std::minmax_element(losses.begin(), losses.end());
  const double difference = (*greatest - *least) / *greatest;
  fmt::print(
      "largest relative difference of the final loss: {:.1e}\n"
      "Each number of ranks takes the same steps on the same batches. It adds the gradients of a\n"
      "batch in another order, so their last bits differ (f32 rounds by up to 6e-8), and training\n"
      "carries that on.\n",
      difference);
  // This is far above what rounding does here, and far below what one sample lost or counted twice
  // does.
  constexpr double kMostByRounding = 1e-4;
  if (difference <= kMostByRounding) return EXIT_SUCCESS;
  fmt::print(stderr, "digits: the losses differ by more than rounding explains ({:.0e})\n",
             kMostByRounding);
  return EXIT_FAILURE;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small network to read handwritten digits, data-parallel with tutti.",
               "digits");
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  if (tutti::launched() && (!options.compare.empty() || app.count("--ranks") > 0))
    throw tutti::Error(tutti::ErrorKind::usage,
                       "a launcher has decided the ranks: leave out --ranks and --compare, or "
                       "start this without one");
  const Dataset data = load(options.images, options.labels);
  if (options.elastic) return train_elastic_and_print(options, data);
  return options.compare.empty() ? train_and_print(options, data)
                                 : compare_and_print(options, data);
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  try {
    return digits::run(argc, argv);
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "digits: {}: {}\n", tutti::to_string(error.kind()), error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "digits: {}\n", error.what());
  }
  return EXIT_FAILURE;
}
