"""The paths of admin events."""

from fastapi import APIRouter

router = APIRouter()
