"""Many devices and many processes: meshes, and processes that work on one corpus together."""

from jaxseq.scale._mesh import DATA as DATA
from jaxseq.scale._mesh import MODEL as MODEL
from jaxseq.scale._mesh import make_mesh as make_mesh
from jaxseq.scale._peers import OtherProcessError as OtherProcessError
from jaxseq.scale._peers import Peers as Peers
from jaxseq.scale._peers import all_peers as all_peers
from jaxseq.scale._start import join_processes as join_processes
from jaxseq.scale._start import leave_processes as leave_processes
