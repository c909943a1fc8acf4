"""Nodes that fail when they are told to, and everything that was said between them and a server."""

from flwr.app import Error, Message


class Watched:
    """Passes messages on, and keeps them; ``fails`` says which nodes fail at which kind."""

    def __init__(self, grid_, fails=()):
        self.grid, self.fails, self.sent, self.replies = grid_, dict(fails), [], []

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, outgoing):
        outgoing = list(outgoing)
        ids = self.grid.push_messages(outgoing)
        self.sent += outgoing
        return ids

    def pull_messages(self, message_ids):
        for reply in self.grid.pull_messages(message_ids):
            self.replies.append(reply)
            kind, node = reply.metadata.message_type, reply.metadata.src_node_id
            if node not in self.fails.get(kind, ()):
                yield reply
            elif node % 2:  # half of them fail, the others never answer
                error = Message(Error(2, "KeyError: 'alice'"), reply_to=reply)
                error.metadata.__dict__.update(reply.metadata.__dict__)
                yield error
