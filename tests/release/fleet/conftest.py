from tests.fixtures.command_line import call as call
from tests.fixtures.fake_engines import engines as engines
