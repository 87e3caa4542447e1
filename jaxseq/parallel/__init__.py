"""Many devices and many processes: meshes, and processes that share one corpus."""

from jaxseq.parallel._mesh import BY_DATA as BY_DATA
from jaxseq.parallel._mesh import DATA as DATA
from jaxseq.parallel._mesh import EVERYWHERE as EVERYWHERE
from jaxseq.parallel._mesh import check_mesh as check_mesh
from jaxseq.parallel._mesh import from_first as from_first
from jaxseq.parallel._mesh import make_mesh as make_mesh
from jaxseq.parallel._mesh import off_mesh as off_mesh
from jaxseq.parallel._mesh import own_mesh as own_mesh
from jaxseq.parallel._mesh import own_parts as own_parts
from jaxseq.parallel._mesh import own_rows as own_rows
from jaxseq.parallel._mesh import place as place
from jaxseq.parallel._mesh import place_rows as place_rows
from jaxseq.parallel._mesh import spans_processes as spans_processes
from jaxseq.parallel._peers import LOST as LOST
from jaxseq.parallel._peers import PER_PROCESS as PER_PROCESS
from jaxseq.parallel._peers import Devices as Devices
from jaxseq.parallel._peers import OtherProcessError as OtherProcessError
from jaxseq.parallel._peers import Peers as Peers
from jaxseq.parallel._peers import all_peers as all_peers
from jaxseq.parallel._peers import check_alike as check_alike
from jaxseq.parallel._peers import find_meeting as find_meeting
from jaxseq.parallel._peers import in_words as in_words
from jaxseq.parallel._peers import is_lost as is_lost
from jaxseq.parallel._peers import join_processes as join_processes
from jaxseq.parallel._peers import leave_processes as leave_processes
from jaxseq.parallel._peers import mesh_peers as mesh_peers

__all__ = [
    "DATA",
    "Devices",
    "OtherProcessError",
    "Peers",
    "all_peers",
    "join_processes",
    "leave_processes",
    "make_mesh",
]
"""What users call; the other names are for the packages of jaxseq itself."""
