// Collectives on blocks: each rank has a tensor, or a part of one.
#include "backend.h"

#include <c10/util/Exception.h>

#include "calls.h"
#include "reductions.h"
#include "tensors.h"

namespace tutti::pytorch {
void Backend::check_lists(const char* what, const TensorLists& lists,
                          const at::Tensor& like) const {
  TORCH_CHECK_VALUE(lists.size() == 1 && lists[0].size() == static_cast<std::size_t>(getSize()),
                    what, ": takes a list of one tensor for each of the ", getSize(),
                    " ranks, and got ", lists.empty() ? 0 : lists[0].size());
  check_types(what, lists[0], like);
}

Backend::Handle Backend::allgather(TensorLists& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& options) {
  at::Tensor& input = only("all_gather", inputs);
  check_tensor("all_gather", input);
  check_lists("all_gather", outputs, input);
  WorkPtr made = work(c10d::OpType::ALLGATHER, "tutti:all_gather", inputs);
  const at::Tensor data = made->input(input);
  for (const at::Tensor& each : outputs[0]) check_output("all_gather", each);
  const Tensors results = made->outputs(outputs[0]);
  made->give(outputs);
  const DataType type = elements(data).type;
  const std::size_t count = count_of(data);
  const Blocks blocks = blocks_of("all_gather", results, type);
  const std::size_t expected = blocks.counts[static_cast<std::size_t>(getRank())];
  TORCH_CHECK_VALUE(expected == count, "all_gather: rank ", getRank(), " gives ", count,
                    " elements, and its own tensor in the list holds ", expected);
  return issue(made, terms(options),
               TUTTI_CALL(all_gatherv, data.data_ptr(), blocks.base, blocks.counts,
                          blocks.displacements, type));
}

Backend::Handle Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Backend::Handle Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  constexpr const char* kWhat = "all_gather_into_tensor";
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), kWhat, ": got ",
                    outputs.size(), " outputs for ", inputs.size(), " inputs");
  WorkPtr made = work(c10d::OpType::_ALLGATHER_BASE, "tutti:all_gather_into_tensor", inputs);
  Tensors from, to;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    check_tensor(kWhat, inputs[k]);
    check_output(kWhat, outputs[k]);
    check_types(kWhat, {outputs[k]}, inputs[k]);
    TORCH_CHECK_VALUE(outputs[k].numel() == inputs[k].numel() * getSize(), kWhat,
                      ": the output holds ", outputs[k].numel(), " elements, and ", getSize(),
                      " ranks give ", inputs[k].numel(), " each");
    from.push_back(made->input(inputs[k]));
    to.push_back(made->output(outputs[k], false));
  }
  made->give(outputs);
  if (from.size() == 1) {
    const DataType type = elements(from[0]).type;
    const std::size_t count = count_of(from[0]);
    return issue(made, terms(options),
                 TUTTI_CALL(all_gather, from[0].data_ptr(), to[0].data_ptr(), count, type));
  }
  return issue(made, terms(options),
               TUTTI_CALLS(from.size(), all_gather, from[k].data_ptr(), to[k].data_ptr(),
                           elements(from[k]).count, elements(from[k]).type));
}

// outputs[r][k] receives rank r's input k.
Backend::Handle Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
  constexpr const char* kWhat = "all_gather_coalesced";
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(getSize()) && !inputs.empty(), kWhat,
                    ": takes a list for each of the ", getSize(), " ranks, and got ",
                    outputs.size());
  WorkPtr made = work(c10d::OpType::ALLGATHER_COALESCED, "tutti:all_gather", inputs);
  Tensors from;
  std::vector<Blocks> to;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    check_tensor(kWhat, inputs[k]);
    from.push_back(made->input(inputs[k]));
    Tensors column;
    for (const Tensors& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), kWhat, ": a list of ", list.size(),
                        " outputs for ", inputs.size(), " inputs");
      check_output(kWhat, list[k]);
      TORCH_CHECK_VALUE(list[k].numel() == inputs[k].numel(), kWhat, ": an output of ",
                        list[k].numel(), " elements for an input of ", inputs[k].numel());
      column.push_back(list[k]);
    }
    check_types(kWhat, column, inputs[k]);
    to.push_back(blocks_of(kWhat, made->outputs(column), elements(from[k]).type));
  }
  made->give(outputs);
  return issue(made, terms(options),
               TUTTI_CALLS(from.size(), all_gatherv, from[k].data_ptr(), to[k].base, to[k].counts,
                           to[k].displacements, elements(from[k]).type));
}

Backend::Handle Backend::gather(TensorLists& outputs, Tensors& inputs,
                                const c10d::GatherOptions& options) {
  at::Tensor& input = only("gather", inputs);
  check_tensor("gather", input);
  WorkPtr made = work(c10d::OpType::GATHER, "tutti:gather", inputs);
  const int root = static_cast<int>(options.rootRank);
  const at::Tensor data = made->input(input);
  const DataType type = elements(data).type;
  const std::size_t count = count_of(data);
  Blocks blocks;
  if (root == getRank()) {
    check_lists("gather", outputs, input);
    for (const at::Tensor& each : outputs[0]) check_output("gather", each);
    blocks = blocks_of("gather", made->outputs(outputs[0]), type);
    made->give(outputs);
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "gather: rank ", getRank(), " is not the root ", root,
                      ", and takes no list to gather into");
  }
  return issue(made, terms(options),
               TUTTI_CALL(gatherv, data.data_ptr(), count, blocks.base, blocks.counts,
                          blocks.displacements, type, root));
}

Backend::Handle Backend::scatter(Tensors& outputs, TensorLists& inputs,
                                 const c10d::ScatterOptions& options) {
  at::Tensor& output = only("scatter", outputs);
  check_output("scatter", output);
  WorkPtr made = work(c10d::OpType::SCATTER, "tutti:scatter", inputs.empty() ? outputs : inputs[0]);
  const int root = static_cast<int>(options.rootRank);
  const at::Tensor data = made->output(output, false);
  const DataType type = elements(data).type;
  const std::size_t count = count_of(data);
  Blocks blocks;
  if (root == getRank()) {
    check_lists("scatter", inputs, output);
    for (const at::Tensor& each : inputs[0]) check_tensor("scatter", each);
    blocks = blocks_of("scatter", made->inputs(inputs[0]), type);
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "scatter: rank ", getRank(), " is not the root ", root,
                      ", and takes no list to scatter");
  }
  made->give(outputs);
  return issue(made, terms(options),
               TUTTI_CALL(scatterv, blocks.base, blocks.counts, blocks.displacements,
                          data.data_ptr(), count, type, root));
}

Backend::Handle Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  at::Tensor& output = only("reduce_scatter", outputs);
  check_output("reduce_scatter", output);
  check_lists("reduce_scatter", inputs, output);
  WorkPtr made = work(c10d::OpType::REDUCE_SCATTER, "tutti:reduce_scatter", inputs[0]);
  const at::Tensor data = made->output(output, false);
  for (const at::Tensor& each : inputs[0]) check_tensor("reduce_scatter", each);
  const Tensors pieces = made->inputs(inputs[0]);
  made->give(outputs);
  const Reduction how("reduce_scatter", options.reduceOp, data);
  const Blocks blocks = blocks_of("reduce_scatter", pieces, how.type);
  const std::size_t expected = blocks.counts[static_cast<std::size_t>(getRank())];
  TORCH_CHECK_VALUE(expected == count_of(data), "reduce_scatter: rank ", getRank(), " gets ",
                    expected, " elements, and its output holds ", count_of(data));
  return issue(made, terms(options, how),
               TUTTI_CALL(reduce_scatterv, blocks.base, data.data_ptr(), blocks.counts,
                          blocks.displacements, how.type, how.op));
}

Backend::Handle Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Backend::Handle Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kWhat = "reduce_scatter_tensor";
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), kWhat, ": got ",
                    outputs.size(), " outputs for ", inputs.size(), " inputs");
  WorkPtr made = work(c10d::OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter_tensor", inputs);
  Tensors from, to;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    check_tensor(kWhat, inputs[k]);
    check_output(kWhat, outputs[k]);
    check_types(kWhat, {outputs[k], inputs[k]}, inputs[0]);
    TORCH_CHECK_VALUE(inputs[k].numel() == outputs[k].numel() * getSize(), kWhat,
                      ": the input holds ", inputs[k].numel(), " elements, and ", getSize(),
                      " ranks get ", outputs[k].numel(), " each");
    from.push_back(made->input(inputs[k]));
    to.push_back(made->output(outputs[k], false));
  }
  made->give(outputs);
  const Reduction how(kWhat, options.reduceOp, from.front());
  if (from.size() == 1)
    return issue(made, terms(options, how),
                 TUTTI_CALL(reduce_scatter, from[0].data_ptr(), to[0].data_ptr(), count_of(to[0]),
                            how.type, how.op));
  return issue(made, terms(options, how),
               TUTTI_CALLS(from.size(), reduce_scatter, from[k].data_ptr(), to[k].data_ptr(),
                           count_of(to[k]), how.type, how.op));
}

namespace {

// Returns the number of elements for each rank of a tensor whose first dimension is split: evenly
// if `splits` is empty.
std::vector<std::size_t> counts_by_splits(const char* which, const at::Tensor& tensor,
                                          const std::vector<std::int64_t>& splits, int size) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty())
    TORCH_CHECK_VALUE(rows % size == 0, "all_to_all_single: the ", which, "'s ", rows,
                      " rows cannot be split evenly over ", size, " ranks");
  std::vector<std::int64_t> parts = splits;
  if (splits.empty()) parts.assign(static_cast<std::size_t>(size), rows / size);
  std::int64_t sum = 0;
  for (const std::int64_t part : parts) {
    TORCH_CHECK_VALUE(part >= 0, "all_to_all_single: a split of ", part, " rows");
    sum += part;
  }
  TORCH_CHECK_VALUE(parts.size() == static_cast<std::size_t>(size) && sum == rows,
                    "all_to_all_single: ", parts.size(), " splits with ", sum, " rows in all for ",
                    size, " ranks and an ", which, " of ", rows, " rows");
  const std::size_t row = rows > 0 ? count_of(tensor) / static_cast<std::size_t>(rows) : 0;
  std::vector<std::size_t> counts;
  for (const std::int64_t part : parts) counts.push_back(static_cast<std::size_t>(part) * row);
  return counts;
}

}  // namespace

Backend::Handle Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                       std::vector<std::int64_t>& output_splits,
                                       std::vector<std::int64_t>& input_splits,
                                       const c10d::AllToAllOptions& options) {
  check_tensor("all_to_all_single", input);
  check_output("all_to_all_single", output);
  check_types("all_to_all_single", {output}, input);
  WorkPtr made = work(c10d::OpType::ALLTOALL_BASE, "tutti:all_to_all", {input});
  const at::Tensor from = made->input(input);
  const at::Tensor to = made->output(output, false);
  made->give({output});
  const auto from_counts = counts_by_splits("input", from, input_splits, getSize());
  const auto to_counts = counts_by_splits("output", to, output_splits, getSize());
  return issue(made, terms(options),
               TUTTI_CALL(all_to_allv, from.data_ptr(), from_counts, PerRank{}, to.data_ptr(),
                          to_counts, PerRank{}, elements(from).type));
}

Backend::Handle Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                  const c10d::AllToAllOptions& options) {
  const auto size = static_cast<std::size_t>(getSize());
  TORCH_CHECK_VALUE(outputs.size() == size && inputs.size() == size,
                    "all_to_all: takes a tensor for "
                    "each of the ",
                    size, " ranks, and got ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs");
  check_types("all_to_all", inputs, inputs.front());
  check_types("all_to_all", outputs, inputs.front());
  WorkPtr made = work(c10d::OpType::ALLTOALL, "tutti:all_to_all", inputs);
  for (const at::Tensor& each : inputs) check_tensor("all_to_all", each);
  for (const at::Tensor& each : outputs) check_output("all_to_all", each);
  const Tensors from = made->inputs(inputs), to = made->outputs(outputs);
  made->give(outputs);
  const DataType type = elements(inputs.front()).type;
  const Blocks given = blocks_of("all_to_all", from, type);
  const Blocks got = blocks_of("all_to_all", to, type);
  return issue(made, terms(options),
               TUTTI_CALL(all_to_allv, given.base, given.counts, given.displacements, got.base,
                          got.counts, got.displacements, type));
}

}  // namespace tutti::pytorch
