"""The function for people: the dashboard's pages. They poll, since nothing here can stream."""

from forge_functions.dashboard.site import install
from forge_functions.handlers.gateway import Gateway

handler = Gateway(finish=install)
