// BiLstm, the recurrent network that the paper compares with in speech recognition.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace experiments {

struct BiLstmOptions {
  int64_t features = 40;  // numbers in a frame
  int64_t phones = 0;     // without the blank of CTC
  int64_t layers = 3;
  int64_t hidden = 320;  // in each direction
  double dropout = 0;    // in training, of the outputs of every layer but the last
};

// A bidirectional LSTM, a linear layer and log_softmax, with PyTorch's default initialisation. Sequences are packed, so that the
// backward direction of each begins at its own last frame, not in the padding, and nothing is computed for padding.
class BiLstmImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError for a size below 1 and a dropout outside [0, 1).
  explicit BiLstmImpl(BiLstmOptions options);
  // The arguments, result and errors of SpeechModel::forward(): features [B,T,features] and int64 [B] → [B,T,phones+1], where
  // class 0 is the blank. The log-probabilities of padding mean nothing.
  at::Tensor forward(const at::Tensor& features, const at::Tensor& frame_lengths);

  const BiLstmOptions& options() const { return options_; }

  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear output{nullptr};

 private:
  BiLstmOptions options_;
};
TORCH_MODULE(BiLstm);

}  // namespace experiments
