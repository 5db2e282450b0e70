// Several workers side by side that take their samples in turns, so that whatever slows the machine down for a while slows all of
// them down alike. A byte goes round: who reads it has the turn, and writes it to the next. Where a worker ends, for whatever
// reason, its pipes close and the others' turns are over as well.
#pragma once

namespace attnbench {

class Turns {
 public:
  // Descriptors that the byte comes from and goes to; closed at the end. From the first turn on the thread that asks for it stays
  // on `processor`, if that is not negative.
  Turns(int from_previous, int to_next, int processor);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Waits for the turn. False when there are no more. The first waits, too, until each worker has asked for its first.
  // Throws std::runtime_error when the processor is not to be had.
  bool await();
  void pass();

 private:
  bool read_byte();
  int from_previous_, to_next_, processor_;
  bool begun_ = false, ended_ = false;
};

}  // namespace attnbench
