"""Networks in namespaces: `with Lab(link, server_tcp, client_tcp) as lab: lab.server.run([...])`."""

from netlab.lab.lab import Completed, End, Lab

__all__ = ["Completed", "End", "Lab"]
