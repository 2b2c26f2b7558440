"""The paths of admin queues."""

from fastapi import APIRouter

router = APIRouter()
