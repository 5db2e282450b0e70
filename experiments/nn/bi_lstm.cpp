// Runs utterances of different lengths through an LSTM in both directions.
#include "experiments/nn/bi_lstm.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/nn/utils/rnn.h>

#include "experiments/nn/transformer.h"

namespace experiments {

BiLstmImpl::BiLstmImpl(BiLstmOptions options) : options_(options) {
  const auto check = [](const char* name, int64_t size) {
    TORCH_CHECK_VALUE(size >= 1, "BiLstm: ", name, " = ", size, ", expected at least 1");
  };
  check("features", options.features);
  check("phones", options.phones);
  check("layers", options.layers);
  check("hidden", options.hidden);
  TORCH_CHECK_VALUE(options.dropout >= 0 && options.dropout < 1, "BiLstm: dropout = ", options.dropout,
                    ", expected a number from 0 to below 1");
  lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(options.features, options.hidden)
                                                     .num_layers(options.layers)
                                                     .dropout(options.dropout)
                                                     .bidirectional(true)
                                                     .batch_first(true)));
  output = register_module("output", torch::nn::Linear(2 * options.hidden, options.phones + 1));
}

at::Tensor BiLstmImpl::forward(const at::Tensor& features, const at::Tensor& frame_lengths) {
  TORCH_CHECK_VALUE(features.dim() == 3 && features.size(2) == options_.features, "BiLstm: features have shape ",
                    features.sizes(), ", expected [batch, length, ", options_.features, "]");
  check_frame_lengths("BiLstm", frame_lengths, features.size(0), features.size(1));
  namespace rnn = torch::nn::utils::rnn;
  const auto packed = rnn::pack_padded_sequence(features, frame_lengths, /*batch_first=*/true, /*enforce_sorted=*/false);
  const auto states = std::get<0>(lstm->forward_with_packed_input(packed));
  const auto padded =
      std::get<0>(rnn::pad_packed_sequence(states, /*batch_first=*/true, /*padding_value=*/0, /*total_length=*/features.size(1)));
  return at::log_softmax(output(padded), -1);
}

}  // namespace experiments
