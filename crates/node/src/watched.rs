//! Streams of the tree of service files: the changes of requests to trees, for watches, and their
//! own requests to the namespace.
//!
//! All requests pass the mux, which sends each to the tree that has its files. There the changes
//! follow from the request, and whether they were made from the reply.

use super::{MAIN, Node, SERVICE};
use crate::message::Message;
use base::Error;
use tree::service::{Coverage, Service};
use tree::{Changes, Input as TreeInput, Reply, RequestId};

impl Node {
    /// Notes what a request to a tree will change.
    pub(crate) fn note_request(&mut self, tree: u16, input: &TreeInput) {
        let TreeInput::Ask(id, request) = input else { return };
        let of = &self.trees[tree];
        if let Some(changes) = Changes::of(&request.ask, |file| of.key(file)) {
            let before = self.changing.insert(*id, changes);
            assert!(before.is_none(), "a request is made to one tree at a time");
        }
    }

    /// Reports the changes of a request.
    pub(crate) fn note_reply(&mut self, id: RequestId, reply: &Result<Reply, Error>) {
        let Some(changes) = self.changing.remove(&id) else { return };
        let Some(service) = self.trees[SERVICE].downcast_mut::<Service>() else { return };
        for change in changes.made(reply) {
            service.publish(id.requester(), change);
        }
        self.trees.mark(SERVICE);
    }

    /// Reports that anything may have changed: the namespace has.
    ///
    /// Nothing but this server changes a volume. Files of other trees have numbers of another
    /// range, so clients can tell them from those of the first one. The entries of a union are
    /// those of several directories, whose changes do not name it.
    pub(crate) fn lose_changes(&mut self) {
        self.note_points();
        let (_, unions) = self.names.points();
        let (is_volume, has_unions) = (self.trees[MAIN].volume().is_some(), unions > 0);
        let coverage = Coverage { is_complete: is_volume && !has_unions, has_unions };
        if let Some(service) = self.trees[SERVICE].downcast_mut::<Service>() {
            service.lose_changes();
            service.set_coverage(coverage);
        }
        self.trees.mark(SERVICE);
    }

    /// Reports which entries may be mount points, to streams of subtrees.
    pub(crate) fn note_points(&mut self) {
        let points = self.names.point_names(MAIN);
        if let Some(service) = self.trees[SERVICE].downcast_mut::<Service>() {
            service.set_points(points);
        }
    }

    /// Begins a turn of the streams.
    pub(crate) fn begin_streams(&mut self) {
        if let Some(service) = self.trees[SERVICE].downcast_mut::<Service>() {
            service.begin_turn();
        }
    }

    /// Returns whether there are streams. One that was closed stays until its request is answered.
    pub(crate) fn has_streams(&self) -> bool {
        let service = self.trees[SERVICE].downcast_ref::<Service>();
        service.is_some_and(|service| service.watches().0 + service.subtrees().0 > 0)
    }

    /// Delivers a reply to a stream.
    pub(crate) fn answer_stream(&mut self, id: RequestId, reply: Result<Reply, Error>) {
        self.messages.push_back(Message::Tree(SERVICE, TreeInput::Answered(id.0, reply)));
    }
}
