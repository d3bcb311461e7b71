//! Execution of client requests.

use super::waiting::Blocked;
use super::{Output, Outputs, Refusal, Replica};
use crate::data::DataType;

impl<D: DataType> Replica<D> {
    /// Executes ready client requests, as far as the meter allows.
    pub(super) fn serve(&mut self, out: &mut Outputs<D>) {
        while self.meter.has_left()
            && let Some(first) = self.waiting.first_ready()
        {
            let (strict, operator) = (first.strict, &first.operator);
            let reads = !strict && self.data.is_read(operator);
            let shows = reads || !strict && !self.data.is_free(operator);
            let has_room =
                self.waiting.pending_answers().is_below(self.config.limits.pending_answers);
            if has_room && shows && !self.order.refresh(&mut self.meter) {
                return;
            }
            self.meter.spend(1);
            let request = self.waiting.take_ready().expect("it was looked at");
            if !has_room {
                out.push(Output::Refuse(request.ticket, Refusal::Busy));
            } else if reads {
                self.look(&request, out);
            } else if self.origins.kept().is_below(self.config.limits.kept) {
                self.perform(request, out);
            } else {
                out.push(Output::Refuse(request.ticket, self.full()));
            }
        }
    }

    /// Answers a read that permits the local order; it needs no place in it.
    pub(super) fn look(&mut self, request: &Blocked<D::Operator>, out: &mut Outputs<D>) {
        let value = self.order.look(&request.operator, &mut self.meter);
        let is_final = self.data.is_free(&request.operator);
        let token = self.origins.done().clone();
        // Operations that it shows may not be in the journal yet.
        let asked = (request.ticket, request.until);
        let value = self.sized(value);
        self.waiting.answer_when(self.written, asked, value, is_final, token);
        if self.unwritten.is_empty() {
            self.waiting.let_say(self.written);
        }
        self.waiting.say(&mut self.meter, out);
    }

    /// Returns a value with its heap size in bytes.
    pub(super) fn sized(&self, value: D::Value) -> (D::Value, usize) {
        let bytes = self.data.value_size(&value);
        (value, bytes)
    }
}
