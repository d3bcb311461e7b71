//! Execution of client requests.

use super::waiting::Blocked;
use super::{Output, Outputs, Refusal, Replica};
use crate::data::DataType;
use crate::work;

impl<D: DataType> Replica<D> {
    /// Executes ready client requests, as far as the meter allows.
    pub(super) fn serve(&mut self, out: &mut Outputs<D>) {
        while self.meter.has_left()
            && let Some(first) = self.waiting.first_ready()
        {
            let shows = self.shows(first);
            if !self.prepare(shows) {
                return;
            }
            let request = self.waiting.take_ready().expect("it was looked at");
            self.execute(request, out);
        }
    }

    /// Executes a new request without queueing it, if nothing is ahead of it and the meter allows;
    /// otherwise returns it.
    pub(super) fn serve_at_once(
        &mut self,
        request: Blocked<D::Operator>,
        out: &mut Outputs<D>,
    ) -> Option<Blocked<D::Operator>> {
        let is_first = !self.waiting.has_ready() && !self.waiting.has_durable();
        let is_next = is_first && self.origins.done().covers(&request.after);
        let shows = self.shows(&request);
        if !is_next || !self.meter.has_left() || !self.prepare(shows) {
            return Some(request);
        }
        self.execute(request, out);
        None
    }

    /// Returns whether the answer to a request shows the local order.
    fn shows(&self, request: &Blocked<D::Operator>) -> bool {
        let Blocked { strict, operator, .. } = request;
        !strict && (self.data.is_read(operator) || !self.data.is_free(operator))
    }

    /// Prepares the execution of a request; returns whether it may begin. What shows the local
    /// order needs the state at its end.
    fn prepare(&mut self, shows: bool) -> bool {
        !shows || !self.has_room() || self.order.refresh(&mut self.meter)
    }

    /// Returns whether there is room for an answer.
    fn has_room(&self) -> bool {
        self.waiting.pending_answers().is_below(self.config.limits.pending_answers)
    }

    fn execute(&mut self, request: Blocked<D::Operator>, out: &mut Outputs<D>) {
        self.meter.spend(1);
        if !self.has_room() {
            out.push(Output::Refuse(request.ticket, Refusal::Busy));
        } else if !request.strict && self.data.is_read(&request.operator) {
            self.look(request, out);
        } else if self.origins.kept().is_below(self.config.limits.kept) {
            self.perform(request, out);
        } else {
            out.push(Output::Refuse(request.ticket, self.full()));
        }
    }

    /// Answers a read that permits the local order; it needs no place in it.
    fn look(&mut self, request: Blocked<D::Operator>, out: &mut Outputs<D>) {
        let Blocked { ticket, operator, until, .. } = request;
        let value = self.order.look(&operator, &mut self.meter);
        let is_final = self.data.is_free(&operator);
        let token = self.origins.done().clone();
        // Operations that it shows may not be in the journal yet.
        if self.unwritten.is_empty() {
            self.waiting.allow_send(self.written);
            if self.meter.has_left() {
                self.meter.spend(1 + work::of_bytes(self.data.value_size(&value)));
                return out.push(Output::Answer { ticket, value, is_final, token });
            }
        }
        let value = self.sized(value);
        self.waiting.answer_when(self.written, (ticket, until), value, is_final, token);
        self.waiting.send_durable(&mut self.meter, out);
    }

    /// Returns a value with its heap size in bytes.
    pub(super) fn sized(&self, value: D::Value) -> (D::Value, usize) {
        let bytes = self.data.value_size(&value);
        (value, bytes)
    }
}
